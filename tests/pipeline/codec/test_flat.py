"""Decoding many records at once gives the values of the broker's reader, field by field."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.codec.strategies import value_of, versions_of
from tests.pipeline.codec.test_typed import bronze, key_of, vectors

from konvene.codec.compile import encode
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.pipeline.codec import commits, flat, typed
from konvene.pipeline.codec.bronze import LogRecords
from konvene.pipeline.codec.typed import TYPED, SilverTable
from konvene.records.consumer import ConsumerGroupCurrentMemberAssignmentValue, TopicPartitions
from konvene.records.offsets import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue

Pair = tuple[bytes | None, bytes | None]
TABLES = list(TYPED.values())


@pytest.fixture(autouse=True)
def always_vectorized() -> Iterator[None]:
    """Decode even few rows at once."""
    before, typed.MAX_SCALAR_ROWS = typed.MAX_SCALAR_ROWS, 1
    yield
    typed.MAX_SCALAR_ROWS = before


def plain_rows(table: SilverTable, records: LogRecords) -> list[bool]:
    if table.kind.key in (OffsetCommitKey, LegacyOffsetCommitKey):
        found, _ = commits.decode(records, table.kind.key is LegacyOffsetCommitKey)
    else:
        found, _ = flat.decode(records, table.kind)
    return found.tolist()  # type: ignore[no-any-return]


def assert_same(table: SilverTable, pairs: list[Pair]) -> None:
    """Compare rows and quarantine with those of one-by-one decoding."""
    records = bronze(table.log_topic, pairs)
    rows, bad = table.decode(records)
    rows.validate(full=True)
    want_rows, want_bad = table._one_by_one(records)
    assert rows.to_pylist() == want_rows.to_pylist()
    assert rows.equals(want_rows)
    assert (bad and bad.to_pylist()) == (want_bad and want_bad.to_pylist())


@st.composite
def pairs_of(draw: st.DrawFn, table: SilverTable) -> list[Pair]:
    """Generate records of all versions, with undeclared tagged fields, and tombstones."""
    out: list[Pair] = []
    keys = draw(st.lists(value_of(table.kind.key, 0), min_size=1, max_size=3))
    for i in range(draw(st.integers(1, 8))):
        version = draw(st.sampled_from(list(versions_of(table.kind.value))))
        value = encode(draw(value_of(table.kind.value, version)), version)
        key = table.kind.code.to_bytes(2, "big") + encode(keys[i % len(keys)], 0)
        out.append((key, draw(st.sampled_from([version.to_bytes(2, "big") + value] * 4 + [None]))))
    return out


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@settings(max_examples=depth.examples(12), deadline=None)
@given(data=st.data())
def test_rows_match_the_brokers_reader(table: SilverTable, data: st.DataObject) -> None:
    assert_same(table, data.draw(pairs_of(table)))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@settings(max_examples=depth.examples(12), deadline=None)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_damage(table: SilverTable, data: st.DataObject, seed: int) -> None:
    """Changed, lost and inserted bytes give a row as the broker's reader decodes it, or its error."""
    chance = random.Random(seed)
    pairs = data.draw(pairs_of(table))
    assert_same(
        table, [(damaged(chance, key), damaged(chance, value)) for key, value in pairs for _ in range(9)]
    )


def damaged(chance: random.Random, data: bytes | None) -> bytes | None:
    if data is None or chance.random() < 0.3:
        return data
    out = bytearray(data)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0:
                out[at : at + 1] = bytes([chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
            case 1:
                del out[at : at + chance.randint(1, 4)]
            case 2:
                out[at:at] = chance.randbytes(chance.randint(1, 4))
            case _:
                out = out[:at]
    return bytes(out)


def test_broker_records_are_decoded_at_once() -> None:
    """Kafka's own bytes of every version give the same rows as one-by-one decoding."""
    seen = set()
    for table in TABLES:
        pairs: list[Pair] = [(key_of(table), None)]
        for each, is_key, row in vectors():
            if each is table:
                data = bytes.fromhex(row["hex"])
                pairs.append((data, None) if is_key else (key_of(table), data))
                seen.add(row["name"])
        assert len(pairs) > 4
        assert_same(table, pairs)
        assert all(plain_rows(table, bronze(table.log_topic, pairs))), table
    assert len(seen) == 2 * len(TABLES)


def commit(value: OffsetCommitValue, version: int, group: str = "g", topic: str = "t") -> Pair:
    key = encode(OffsetCommitKey(group=group, topic=topic, partition=-7), 0)
    return b"\0\1" + key, version.to_bytes(2, "big") + encode(value, version)


def test_commits_of_every_version() -> None:
    """Each version has its fields, with texts and ids of all kinds."""
    table = TYPED["__consumer_offsets", 1]
    topic_id = Uuid(range(16))
    pairs: list[Pair] = []
    for version in range(5):
        for text in ("", "x", "é" * 31, "m" * 200):
            value = OffsetCommitValue(
                offset=1 << 60, leader_epoch=9 if version >= 3 else -1, metadata=text, commit_timestamp=-1,
                expire_timestamp=5 if version == 1 else -1, topic_id=topic_id if version == 4 else ZERO_UUID,
            )  # fmt: skip
            pairs += [commit(value, version), (commit(value, version)[0], None)]
    assert_same(table, pairs)
    plain = plain_rows(table, bronze(table.log_topic, pairs))
    assert [i for i, is_plain in enumerate(plain) if not is_plain] == [38]  # a length of two bytes
    rows, _ = table.decode(bronze(table.log_topic, pairs))
    last = rows.slice(len(rows) - 2, 1).to_pylist()[0]
    assert (last["committed_offset"], last["partition"], last["topic_id"]) == (1 << 60, -7, str(topic_id))
    assert rows.column("topic_id").null_count == len(pairs) - 4


def test_commits_with_invalid_utf8() -> None:
    """Group, topic or metadata are not valid UTF-8."""
    table = TYPED["__consumer_offsets", 1]
    key, value = commit(OffsetCommitValue(metadata="meta"), 3, "group", "topic")
    assert key is not None and value is not None
    bad = [(key.replace(b"group", b"gr\xffup"), value), (key.replace(b"topic", b"top\xc3c"), value)]
    bad.append((key, value.replace(b"meta", b"m\xed\xa0\x80")))
    assert_same(table, [(key, value), *bad, (key, None), (key, value)])
    rows, quarantine = table.decode(bronze(table.log_topic, [(key, value), *bad, (key, None), (key, value)]))
    assert (len(rows), len(quarantine)) == (3, 3)


def test_record_with_many_structs() -> None:
    """A member of very many topics is decoded in its place."""
    table = TYPED["__consumer_offsets", 8]
    pairs: list[Pair] = []
    for count in (0, 1, flat.MAX_STRUCTS, flat.MAX_STRUCTS + 1, 500, 2):
        held = tuple(TopicPartitions(topic_id=Uuid([i % 250] * 16), partitions=(i,)) for i in range(count))
        value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=count, assigned_partitions=held)
        pairs.append((key_of(table), b"\0\0" + encode(value, 0)))
    assert_same(table, pairs)
    assert plain_rows(table, bronze(table.log_topic, pairs)) == [True, True, True, False, False, True]


def test_implausible_lengths_allocate_nothing() -> None:
    """A count or length that exceeds the bytes left is rejected before any allocation."""
    table = TYPED["__consumer_offsets", 8]
    for count in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\x7f"):
        value = b"\0\0" + struct.pack(">iib", 1, 1, 0) + count + bytes(40)
        assert_same(table, [(key_of(table), value)] * 5)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_rows_go_to_parquet_and_back(table: SilverTable) -> None:
    """Nulls and nested columns survive Parquet files."""
    pairs: list[Pair] = [(key_of(table), None)]
    pairs += [
        (key_of(table), bytes.fromhex(row["hex"]))
        for each, is_key, row in vectors()
        if each is table and not is_key
    ]
    rows, _ = table.decode(bronze(table.log_topic, pairs))
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        writer.write_batch(rows)
    again = pq.ParquetFile(io.BytesIO(file.getvalue())).read()
    assert again.to_pylist() == rows.to_pylist()
