"""The fast codec of committed offsets produces the same bytes as their declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.errors import CannotEncode
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.records.commits import (
    Committed,
    OffsetCommitted,
    as_commit,
    decode_group_record,
    encode_commit,
    encode_group_record,
)
from konvene.records.coordinator import GROUP_RECORDS, Record, decode_record, encode_record
from konvene.records.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=200) | st.just("x" * 4000)

commits = st.builds(
    OffsetCommitted,
    names,
    names,
    int32,
    st.none()
    | st.builds(
        Committed,
        int64,
        int32,
        names,
        int64,
        st.just(-1) | int64,
        st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(Uuid),
    ),
)


@given(commits)
def test_a_commit_is_encoded_as_declared(record: OffsetCommitted) -> None:
    key = OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition)
    committed, value = record.committed, None
    if committed is not None:
        value = OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
            expire_timestamp=committed.expire_ms,
            topic_id=committed.topic_id,
        )
    pair = encode_record(Record(key, value), GROUP_RECORDS)
    assert encode_commit(record) == encode_group_record(record) == pair
    decoded = decode_group_record(*pair)
    if committed is not None and committed.expire_ms != -1:  # Version 1 lacks the other fields.
        committed = committed._replace(leader_epoch=-1, topic_id=ZERO_UUID)
    assert decoded == record._replace(committed=committed)


def test_a_legacy_record_is_a_commit() -> None:
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=3)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
    assert as_commit(Record(key, value)) == OffsetCommitted("g", "t", 3, Committed(9, -1, "m", 5))
    assert as_commit(Record(key, None)) == OffsetCommitted("g", "t", 3, None)


@pytest.mark.parametrize(
    "record",
    [
        OffsetCommitted("g" * 32768, "t", 0, None),
        OffsetCommitted("g", "\ud800", 0, None),
        OffsetCommitted("g", "t", 2**31, None),
        OffsetCommitted("g", "t", 0, Committed(2**63)),
        OffsetCommitted("g", "t", 0, Committed(0, metadata="\ud800")),
    ],
)
def test_commits_that_cannot_be_encoded_are_rejected(record: OffsetCommitted) -> None:
    with pytest.raises(CannotEncode):
        encode_commit(record)


def test_other_records_are_decoded_by_the_general_codec() -> None:
    key = GROUP_RECORDS[2].key(group="g")  # type: ignore[call-arg]
    pair = encode_group_record(Record(key, None))
    assert decode_group_record(*pair) == decode_record(pair[0], pair[1], GROUP_RECORDS) == Record(key, None)
    assert decode_group_record(b"\0\x63\0", b"") is None
