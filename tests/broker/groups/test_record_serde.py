"""Replaying runs of offset commits gives the same shard as replaying single records."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth

from konvene.broker.groups.record_serde import read
from konvene.codec import batches as rb
from konvene.codec.compile import encode
from konvene.codec.compression import Compression
from konvene.codec.errors import CodecError
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.groups.shard import GroupShard
from konvene.records.commits import (
    Committed,
    OffsetCommitted,
    OffsetsCommitted,
    decode_group_record,
    encode_group_record,
)
from konvene.records.coordinator import GROUP_RECORDS, Record
from konvene.records.offsets import OffsetCommitKey, OffsetCommitValue
from konvene.runtime.ports import one_by_one

TOPIC_ID = Uuid(b"0123456789abcdef")


def as_version_3(record: OffsetCommitted) -> tuple[bytes, bytes | None]:
    """Encode a commit as brokers before topic ids did."""
    assert record.committed is not None
    commit = record.committed
    key = OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition)
    value = OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms,
    )
    return b"\0\1" + encode(key, 0), b"\0\3" + encode(value, 3)


@st.composite
def pairs(draw: st.DrawFn) -> list[tuple[bytes, bytes | None]]:
    """Draw keys and values of a coordinator's records: runs of commits between other records."""
    out: list[tuple[bytes, bytes | None]] = []
    for _ in range(draw(st.integers(1, 6))):
        group, topic = draw(st.sampled_from(["g", "group-2", "g" * 70])), draw(st.sampled_from(["t", "tt"]))
        metadata = draw(st.sampled_from(["", "", "a", "x" * 200]))
        topic_id = draw(st.sampled_from([ZERO_UUID, TOPIC_ID]))
        expire = draw(st.sampled_from([-1, -1, -1, 99]))
        old = draw(st.booleans()) and expire == -1
        for i in range(draw(st.sampled_from([1, 2, 3, 70, 130]))):
            commit = Committed(
                draw(st.integers(-1, 9)) if i < 4 else i << 20, i % 3, metadata, i, expire, topic_id
            )
            record = OffsetCommitted(group, topic, i % 100, commit)
            out.append(as_version_3(record) if old else encode_group_record(record))
        match draw(st.integers(0, 4)):
            case 0:
                out.append(encode_group_record(OffsetCommitted(group, topic, draw(st.integers(0, 5)), None)))
            case 1:
                out.append(encode_group_record(Record(GROUP_RECORDS[2].key(group=group), None)))  # type: ignore[call-arg]
            case 2:
                out.append((b"\0\x63\0\0", b"\0\0"))
    return out


def folded(found: Any) -> tuple[dict[str, Any], dict[str, Any], int, list[int]]:
    shard, last = GroupShard(), []
    for offset, _, record in found:
        shard.replay(record)
        last.append(offset)
    return shard.offsets, dict.fromkeys(shard.groups), shard.ignored_records, last[-1:]


@given(
    pairs(),
    st.integers(0, 5_000_000),
    st.sampled_from([Compression.NONE, Compression.NONE, Compression.ZSTD]),
    st.sampled_from([0, 0, 50, 1000]),
    st.sampled_from([0, 0, 2, 7]),
)
@settings(deadline=None, max_examples=depth.examples(150))
def test_replaying_runs_equals_replaying_single_records(
    rows: list[tuple[bytes, bytes | None]], base: int, compression: Compression, step: int, gaps: int
) -> None:
    entries = [rb.Record(base + i, 1000 + i * step, key, value) for i, (key, value) in enumerate(rows)]
    entries = [
        entry for i, entry in enumerate(entries) if not gaps or i % gaps
    ]  # Offsets missing after compaction.
    if not entries:
        return
    batch = memoryview(rb.build(entries, compression=compression))
    header = rb.read_header(batch)
    assert folded(read(batch, header)) == folded(one_by_one(decode_group_record)(batch, header))


@given(pairs(), st.data())
@settings(deadline=None, max_examples=depth.examples(150))
def test_a_corrupt_byte_has_the_same_effect_on_runs_and_records(
    rows: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    """Both ways give the same shard, or both raise a CodecError."""
    batch = bytearray(rb.build([rb.Record(i, 1000, key, value) for i, (key, value) in enumerate(rows)]))
    batch[data.draw(st.integers(rb.HEADER_SIZE, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    header = rb.read_header(batch)

    def outcome(reader: Any) -> Any:
        try:
            return folded(reader(memoryview(batch), header))
        except Exception as error:
            assert isinstance(error, CodecError), error
            return "refused"

    assert outcome(read) == outcome(one_by_one(decode_group_record))


def test_consecutive_commits_are_one_run() -> None:
    rows = [encode_group_record(OffsetCommitted("g", "t", i, Committed(i))) for i in range(60)]
    batch = memoryview(rb.build_simple(rows, 1000))
    found = list(read(batch, rb.read_header(batch)))
    assert len(found) == 1
    assert found[0][2] == OffsetsCommitted("g", "t", {i: Committed(i) for i in range(60)})
