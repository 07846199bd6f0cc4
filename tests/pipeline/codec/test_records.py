"""Decoding many batches at once gives the records and errors of the plain decoder."""

from __future__ import annotations

import gzip
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.coordinator_log import segment
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.pipeline.codec.made import emptied, log, plain, read, rows, sealed

from konvene.codec.batches import HEADER_SIZE, Record, build, build_simple, read_header, read_record
from konvene.codec.compression import Compression, compress, decompress
from konvene.codec.varint import read_varint, write_varint
from konvene.pipeline.codec import records as parsing
from konvene.pipeline.codec.bronze import Decoded

VECTORS = Path(__file__).parents[2] / "vectors"


def assert_same(batches: list[bytes], found: list[Decoded]) -> None:
    """Compare rows with the plain decoder's; a batch that it rejects is one row of quarantine."""
    got = [row for each in found for row in each.records.to_pylist()]
    bad = [row for each in found if each.quarantine for row in each.quarantine.to_pylist()]
    position = 0
    for made in batches:
        want = plain(made)
        if isinstance(want, str):
            quarantined = bad.pop(0)
            assert (quarantined["file_position"], quarantined["length"]) == (position, len(made))
            assert quarantined["bytes"] == made[:1024]
            assert quarantined["reason"]
        else:
            header, entries = want
            for record in entries:
                row = got.pop(0)
                assert (row["offset"], row["timestamp_ms"]) == (record.offset, record.timestamp)
                assert (row["key"], row["value"]) == (record.key, record.value)
                assert headers_of(row["headers"]) == record.headers
                assert row["batch_base_offset"] == header.base_offset
                assert row["batch_last_offset"] == header.last_offset
                assert row["batch_records"] == header.record_count
                assert row["attributes"] == header.attributes
                assert row["leader_epoch"] == header.partition_leader_epoch
                assert (row["producer_id"], row["producer_epoch"]) == (
                    header.producer_id,
                    header.producer_epoch,
                )
                assert row["file_position"] == position
        position += len(made)
    assert (got, bad) == ([], [])
    assert found[-1].next_position == position if found else position == 0


def headers_of(data: bytes | None) -> Any:
    """Return the headers that follow the value, read by the plain decoder."""
    if data is None:
        return ()
    body = b"\0\0\0\1\1" + data
    return read_record(write_varint(len(body)) + body, 0, 0, 0, None)[0].headers


@settings(max_examples=depth.examples(60), deadline=None)
@given(log(), st.sampled_from([9, 100, 32_768]))
def test_records_match_the_plain_decoder(batches: list[bytes], most: int) -> None:
    """Batches of all kinds, in blocks of any size."""
    assert_same(batches, read(b"".join(batches), most_records=most))


@settings(max_examples=depth.examples(30), deadline=None)
@given(log(least=3), st.sampled_from([1, 96]))
def test_both_ways_to_find_records_agree(batches: list[bytes], thin: int) -> None:
    """Following each batch and stepping through all batches at once give the same records."""
    before, parsing._MIN_PARALLEL_BATCHES = parsing._MIN_PARALLEL_BATCHES, thin
    try:
        assert_same(batches, read(b"".join(batches)))
    finally:
        parsing._MIN_PARALLEL_BATCHES = before


@settings(max_examples=depth.examples(150), deadline=None)
@given(log(least=2), st.integers(0, 1 << 30), st.sampled_from([1, 96]))
def test_damaged_batches_match_the_plain_decoder(batches: list[bytes], seed: int, thin: int) -> None:
    """For damage with a valid checksum both return the same records, or a row that names the reason."""
    chance = random.Random(seed)
    batches = [sealed(damaged(chance, made)) if chance.random() < 0.5 else made for made in batches]
    batches = apart(batches)
    before, parsing._MIN_PARALLEL_BATCHES = parsing._MIN_PARALLEL_BATCHES, thin
    try:
        assert_same(batches, read(b"".join(batches)))
    finally:
        parsing._MIN_PARALLEL_BATCHES = before


def apart(batches: list[bytes]) -> list[bytes]:
    """Move the batches' base offsets apart, so that offsets rise for any claimed batch length."""
    return [struct.pack(">q", i << 33) + made[8:] for i, made in enumerate(batches)]


def damaged(chance: random.Random, made: bytes) -> bytes:
    """Change, insert or delete some bytes, also within compressed data, and sometimes in the header."""
    kind = made[22] & 7
    if kind and chance.random() < 0.7 and len(made) > HEADER_SIZE:
        body = damaged_body(chance, decompress(kind, made[HEADER_SIZE:]))
        return made[:HEADER_SIZE] + compress(Compression(kind), body)
    if chance.random() < 0.3:
        at = chance.choice([21, 22, 23, 24, 25, 26, *range(27, 43), 57, 58, 59, 60])
        return made[:at] + bytes([made[at] ^ 1 << chance.randrange(8)]) + made[at + 1 :]
    return made[:HEADER_SIZE] + damaged_body(chance, made[HEADER_SIZE:])


def damaged_body(chance: random.Random, body: bytes) -> bytes:
    out = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(min(len(out), chance.choice([8, 100, 100_000]))) if out else 0
        what = chance.randrange(5)
        if what == 0 and out:
            out[at] ^= 1 << chance.randrange(8)
        elif what == 1 and out:
            out[at] = chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF])
        elif what == 2:
            out[at:at] = bytes(chance.choice([0, 1, 0x80, 0xFF]) for _ in range(chance.randint(1, 11)))
        elif what == 3:
            del out[at : at + chance.randint(1, 5)]
        else:
            out += bytes(chance.randint(1, 9))
    return bytes(out)


@pytest.mark.parametrize("raw", [b"\x80\x00", b"\x82\x80\x80\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 5])
@pytest.mark.parametrize("place", range(5))
def test_numbers_of_any_length(raw: bytes, place: int) -> None:
    """Varints with superfluous or too many bytes have the same result in both decoders."""
    numbers = [b"\0", b"\0", b"\0", b"\0", b"\0"]
    numbers[place] = raw
    body = b"\0" + b"".join(numbers)
    one = write_varint(len(body)) + body
    made = build_simple([(b"", b"")], 1000)[:HEADER_SIZE] + one
    batches = apart([sealed(made)] * 3)
    assert_same(batches, read(b"".join(batches)))


@pytest.mark.parametrize(
    "raw", [b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x02", b"\xff" * 10]
)
def test_times_of_any_length(raw: bytes) -> None:
    """Timestamps may have ten bytes; those beyond 64 bits are rejected."""
    body = b"\0" + raw + b"\0\0\0\0"
    made = build_simple([(b"", b"")], -5)[:HEADER_SIZE] + write_varint(len(body)) + body
    (found,) = read(sealed(made))
    want = plain(sealed(made))
    if isinstance(want, str) or not -(1 << 63) <= want[1][0].timestamp < 1 << 63:
        assert (len(found.records), found.quarantine.num_rows) == (0, 1)
    else:
        assert rows([found])[0][1] == want[1][0].timestamp


def test_batch_with_more_records_than_a_block() -> None:
    """The batch is returned in pieces, and only the last piece completes it."""
    entries = [Record(3 * i, i, b"k%d" % i, None) for i in range(1000)]
    data = build(entries)
    found = read(data, most_records=64)
    assert rows(found) == [(r.offset, r.timestamp, r.key, r.value) for r in entries]
    assert max(len(each.records) for each in found) == 64
    assert [each.next_position for each in found] == [0] * (len(found) - 1) + [len(data)]
    twice = bytearray(data)
    at = data.index(b"k777")
    twice[at - 2] = twice[at - 2] - 2  # its offset is the one before by now
    broken = sealed(bytes(twice))
    (found_bad,) = read(broken, most_records=64)
    assert (len(found_bad.records), found_bad.quarantine.num_rows) == (0, 1)


def test_large_invalid_batch_is_not_decoded_again_for_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_MAX_EXPLAINED_RECORDS", 2)
    for count, reason in ((2, "has offset delta 0"), (3, "a record of the batch at offset 5 does not fit")):
        entries = [Record(5 + i, 0, None, None) for i in range(count)]
        made = bytearray(build(entries))
        made[HEADER_SIZE + 7 + 3] = 0
        (found,) = read(sealed(bytes(made)))
        assert reason in found.quarantine.column("reason").to_pylist()[0]


def test_empty_batches() -> None:
    """A batch without records has no rows, but its offsets are reported."""
    made = emptied(build_simple([(b"a", b"b")] * 5, 1000, base_offset=7))
    (found,) = read(made)
    assert (len(found.records), found.quarantine) == (0, None)
    assert (found.first_offset, found.last_offset, found.next_position) == (7, 11, len(made))
    assert read(b"") == []


def test_golden_batches() -> None:
    """Kafka's own batches of every compression and kind."""
    seen = set()
    with gzip.open(VECTORS / "batches.jsonl.gz", "rt", encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            found = read(bytes.fromhex(case["hex"]))
            assert [each.quarantine for each in found] == [None] * len(found)
            want = [
                (
                    r["offset"],
                    r["timestamp"],
                    *(v if v is None else bytes.fromhex(v) for v in (r["key"], r["value"])),
                )
                for batch in case["batches"]
                for r in batch["records"]
            ]
            assert rows(found) == want, case["label"]
            seen.add(case["label"].partition("/")[0])
    assert {"none", "gzip", "snappy", "lz4", "zstd"} <= seen


@pytest.mark.parametrize("kind", list(Compression))
def test_a_large_log(kind: Compression) -> None:
    """A hundred thousand records of a coordinator, in many blocks."""
    data = segment(100_000, seed=3, per_batch=(1, 300), compression=kind)
    got = rows(read(data))
    want, at = [], 0
    while at < len(data):
        size = read_header(data, at).size
        decoded = plain(data[at : at + size])
        assert not isinstance(decoded, str)
        want += [(r.offset, r.timestamp, r.key, r.value) for r in decoded[1]]
        at += size
    assert len(want) == 100_000
    assert got == want


def test_varints() -> None:
    """Varints decoded at once equal those decoded one by one."""
    chance = random.Random(5)
    numbers = [chance.getrandbits(chance.randint(0, 31)) * chance.choice([1, -1]) for _ in range(2000)]
    data = b"".join(write_varint(n) for n in numbers)
    at, starts = 0, []
    for _ in numbers:
        starts.append(at)
        at = read_varint(data, at)[1]
    positions = np.array(starts)
    assert parsing.zigzag(np.frombuffer(data, np.uint8), positions, 5).tolist() == numbers
    assert positions.tolist() == [*starts[1:], len(data)]
