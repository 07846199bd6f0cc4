"""No damage stops a walk: valid batches are read, the rest is quarantined, and every byte is in one of
both."""

from __future__ import annotations

import itertools
import mmap
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.coordinator_log import segment
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.pipeline.codec.made import log, read, rows, sealed

from konvene.codec.batches import HEADER_SIZE, Record, build, build_simple, read_header
from konvene.codec.compression import Compression, compress
from konvene.pipeline.codec import batches as walking
from konvene.pipeline.codec.batches import walk
from konvene.pipeline.codec.bronze import Decoded, blocks


def batches_of_two(count: int = 3) -> list[bytes]:
    """Return `count` batches of two records each."""
    pairs = [(b"key", b"value"), (None, b"more")]
    return [build_simple(pairs, 1000 + i, base_offset=2 * i) for i in range(count)]


def bad(found: list[Decoded]) -> list[tuple[int, int, str]]:
    rows = [row for each in found if each.quarantine for row in each.quarantine.to_pylist()]
    return [(row["file_position"], row["length"], row["reason"]) for row in rows]


def offsets(found: list[Decoded]) -> list[int]:
    return [row[0] for row in rows(found)]


def test_torn_tail_is_left() -> None:
    """For a log that ends at any byte, complete batches are read, and the rest is not reported as damage."""
    batches = batches_of_two()
    data = b"".join(batches)
    ends = [sum(map(len, batches[:n])) for n in range(4)]
    for cut in range(len(data) + 1):
        found = read(data[:cut])
        whole = max(n for n in range(4) if ends[n] <= cut)
        assert offsets(found) == list(range(2 * whole))
        assert bad(found) == []
        assert (found[-1].next_position if found else 0) == ends[whole]


def test_one_changed_byte_loses_at_most_one_batch() -> None:
    """At most one batch is lost; all others are read."""
    batches = batches_of_two()
    data = b"".join(batches)
    size = len(batches[0])
    for at in range(size, 2 * size):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        found = read(bytes(changed))
        quarantined = bad(found)
        if at - size in range(12, 16):  # the leader epoch: no checksum has it
            assert (offsets(found), quarantined) == ([0, 1, 2, 3, 4, 5], [])
        else:
            assert offsets(found) == [0, 1, 4, 5]
            assert [(p, n) for p, n, _ in quarantined] == [(size, size)]
            assert quarantined[0][2]
        assert found[-1].next_position == len(data)


def test_batch_after_an_invalid_length_is_found() -> None:
    """The next batch is found by its checksum, and the bytes between are one row of quarantine."""
    batches = batches_of_two(5)
    size = len(batches[0])
    for length in (-1, 0, 13, 48, 49, 70, 10_000, 0x7FFF_FFFF):
        changed = bytearray(b"".join(batches))
        struct.pack_into(">i", changed, size + 8, length)
        found = read(bytes(changed))
        assert offsets(found) == [0, 1, 4, 5, 6, 7, 8, 9]
        assert [(p, n) for p, n, _ in bad(found)] == [(size, size)]


def test_garbage_between_and_after_batches() -> None:
    batches = batches_of_two()
    rubbish = random.Random(1).randbytes(100_000)
    found = read(batches[0] + rubbish + batches[1] + rubbish[:500])
    assert offsets(found) == [0, 1, 2, 3]
    size = len(batches[0])
    assert [(p, n) for p, n, _ in bad(found)] == [(size, 100_000), (2 * size + 100_000, 500)]
    assert found[-1].next_position == 2 * size + 100_500


def test_trailing_zeros_end_the_log() -> None:
    """A preallocated file is not damaged, but one with data after the zeros is."""
    data = b"".join(batches_of_two())
    found = read(data + bytes(5000))
    assert (offsets(found), bad(found), found[-1].next_position) == ([0, 1, 2, 3, 4, 5], [], len(data))
    found = read(data + bytes(5000) + b"".join(batches_of_two(6)[3:]))
    assert [(p, n) for p, n, _ in bad(found)] == [(len(data), 5000)]
    assert len(offsets(found)) == 12


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_formats_are_skipped(magic: int) -> None:
    """Message sets from before 2017 have a length, so the batches after them are read."""
    message = struct.pack(">qiIbb", 7, 20, 0, magic, 0) + bytes(14)
    batches = batches_of_two()
    found = read(batches[0] + message * 2 + batches[1])
    assert offsets(found) == [0, 1, 2, 3]
    assert [(p - len(batches[0]), n) for p, n, _ in bad(found)] == [(0, 32), (32, 32)]
    assert bad(found)[0][2] == f"magic {magic}: only batches of magic 2 are known"


@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("base", [0, 3, 5, 7, 11, 1 << 40, (1 << 63) - 2])
def test_batch_with_falling_offset_is_skipped(base: int, most: int) -> None:
    """The checksum does not cover the base offset, so such a batch may have a valid one."""
    batches = batches_of_two(6)
    batches[2] = struct.pack(">q", base) + batches[2][8:]
    found = read(b"".join(batches), most_records=most)
    size = len(batches[0])
    if base == 5:  # between its neighbours: undetectable, except that it leaves no room for the next one
        assert offsets(found) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert [row for row in offsets(found) if row not in (4, 5)] == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert bad(found) == [(2 * size, size, f"the batch at offset {base} is out of order")]


def header_with(made: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and the matching checksum."""
    places = {"base_offset": (0, ">q"), "last_offset_delta": (23, ">i"), "record_count": (57, ">i")}
    out = bytearray(made)
    for name, value in fields.items():
        at, kind = places[name]
        struct.pack_into(kind, out, at, value)
    return sealed(bytes(out))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"record_count": -1}, "counts -1 records up to 1 beyond"),
        ({"record_count": 3}, "counts 3 records up to 1 beyond"),
        ({"record_count": 1}, "bytes too many"),
        ({"record_count": 0}, "counts 0 records in"),
        ({"last_offset_delta": -1}, "up to -1 beyond"),
        ({"base_offset": -1}, "counts 2 records up to 1"),
        ({"base_offset": (1 << 63) - 1}, "counts 2 records up to 1"),
        ({"last_offset_delta": 0x7FFF_FFFF, "record_count": 0x7FFF_FFFF}, "counts 2147483647 records in"),
        ({"last_offset_delta": 9, "record_count": 4}, "in 26 bytes"),
    ],
)
def test_inconsistent_header_is_quarantined(fields: dict[str, int], reason: str) -> None:
    batches = batches_of_two()
    batches[1] = header_with(batches[1], **fields)
    found = read(b"".join(batches))
    assert offsets(found) == [0, 1, 4, 5]
    ((position, length, message),) = bad(found)
    assert (position, length) == (len(batches[0]), len(batches[1]))
    assert reason in message


@pytest.mark.parametrize("kind", [k for k in Compression if k])
def test_decompression_bomb_is_quarantined(kind: Compression) -> None:
    """A batch that decompresses beyond the limit is not decompressed, and the next batch is read."""
    batches = batches_of_two()
    bomb = build([Record(2, 0, None, b"x")], compression=kind)[:HEADER_SIZE] + compress(kind, bytes(1 << 21))
    found = read(batches[0] + sealed(bomb) + batches[2], limit=1 << 20)
    assert offsets(found) == [0, 1, 4, 5]
    assert "unpack to more than" in bad(found)[0][2]
    cut = build([Record(2, 0, None, b"x" * 99)], compression=kind)
    found = read(batches[0] + sealed(cut[:-3]) + batches[2])
    assert offsets(found) == [0, 1, 4, 5]
    assert len(bad(found)) == 1


def test_block_size_counts_decompressed_bytes() -> None:
    """Small batches that decompress to many bytes make small blocks."""
    made = [build([Record(i, 0, None, bytes(1 << 20))], compression=Compression.GZIP) for i in range(64)]
    sizes = [len(block.data) for block in walk(b"".join(made), most_bytes=4 << 20)]
    assert len(sizes) >= 16
    assert max(sizes) < 6 << 20
    empty = batches_of_two(1)[0][:57] + bytes(4)
    empties = b"".join(struct.pack(">q", 2 * i) + sealed(empty)[8:] for i in range(50))
    assert [len(block.positions) for block in walk(empties, most_records=20)] == [20, 20, 10]


def test_search_for_batches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that resemble a large batch at every position are not checksummed again and again."""
    front = struct.pack(">qiibIhiqqqhii", 5, 1 << 20, 0, 2, 1234, 0, 9, 0, 0, -1, -1, -1, 1)
    data = batches_of_two()[0] + front * 40_000
    summed = 0

    def counting(covered: memoryview) -> int:
        nonlocal summed
        summed += len(covered)
        return crc32c(covered)

    monkeypatch.setattr(walking, "crc32c", counting)
    found = read(data)
    assert offsets(found) == [0, 1]
    assert [(p, p + n) for p, n, _ in bad(found)] == [(87, len(data))]
    assert len(data) < summed < 5 * len(data)


@settings(max_examples=depth.examples(70), deadline=None)
@given(log(least=2), st.integers(0, 1 << 30), st.sampled_from([9, 50, 32_768]))
def test_every_byte_is_in_a_batch_or_quarantined(batches: list[bytes], seed: int, most: int) -> None:
    """Changes bytes anywhere: no exception, and no byte is read twice or omitted."""
    chance = random.Random(seed)
    data = bytearray(b"".join(batches))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                del data[at : at + chance.randint(1, 200)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 200))
            case _:
                data[at : at + 4] = struct.pack(">i", chance.choice([0, -1, 49, 1 << 30]))
    spans = []
    end = 0
    for block in walk(bytes(data), most_records=most):
        sizes = block.headers["batch_length"].astype(np.int64) + 12
        spans += zip(block.positions.tolist(), sizes.tolist(), strict=True)
        spans += [(b.position, b.length) for b in block.bad]
        end = block.next_position
    spans.sort()
    at = 0
    for position, length in spans:
        assert position == at
        at += length
    assert at == end <= len(data)
    whole = read(bytes(data), most_records=most)
    assert [row[0] for row in rows(whole)] == offsets(read(bytes(data)))


@settings(max_examples=depth.examples(100), deadline=None)
@given(st.binary(max_size=400), st.integers(0, 3))
def test_arbitrary_bytes_are_quarantined(data: bytes, copies: int) -> None:
    """Bytes that are no log at all, alone and after a plausible header."""
    front = batches_of_two()[0][:HEADER_SIZE] * copies
    for buf in (data, front + data, data + front):
        rows(read(buf))


@settings(max_examples=depth.examples(40), deadline=None)
@given(log(least=3), st.data())
def test_pieces_have_the_batches_of_the_whole(batches: list[bytes], data: Any) -> None:
    """Each piece reads the batches that begin in it, although the last one extends beyond it."""
    whole = b"".join(batches)
    ends = [sum(map(len, batches[:n])) for n in range(len(batches) + 1)]
    cuts = sorted(data.draw(st.sets(st.sampled_from(ends))) | {0, len(whole)})
    found: list[Decoded] = []
    for position, end in itertools.pairwise(cuts):
        piece = read(whole, position=position, end=end - data.draw(st.sampled_from([0, 1])))
        assert piece[-1].next_position == end
        found += piece
    assert rows(found) == rows(read(whole))


def test_positions_are_those_of_the_segment(tmp_path: Path) -> None:
    """A piece read alone has positions in its segment; a fetch has none. A memory map is a buffer too."""
    path = tmp_path / "log"
    path.write_bytes(segment(500))
    data = path.read_bytes()
    at = read_header(data).size
    whole = [row["file_position"] for each in read(data) for row in each.records.to_pylist()]
    piece = [row["file_position"] for each in read(data[at:], origin=at) for row in each.records.to_pylist()]
    assert piece == [position for position in whole if position >= at]
    fetched = [row for each in blocks(data) for row in each.records.to_pylist()]
    assert {(row["file_position"], row["segment_base_offset"]) for row in fetched} == {(-1, -1)}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert rows(read(mapped)) == rows(read(data)) == rows(read(memoryview(data)))
