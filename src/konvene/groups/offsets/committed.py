"""What a group remembers of a partition, and the record that says so."""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.records.coordinator import Record
from konvene.records.offsets import OffsetCommitKey, OffsetCommitValue

NO_OFFSET = -1


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1
    topic_id: Uuid = ZERO_UUID


NOT_COMMITTED = Committed(NO_OFFSET)

Offsets = dict[tuple[str, int], Committed]
"""A group's offsets by topic and partition."""


def to_record(group_id: str, topic: str, partition: int, committed: Committed) -> Record:
    return Record(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
            expire_timestamp=committed.expire_ms,
            topic_id=committed.topic_id,
        ),
    )


def tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def from_record(value: OffsetCommitValue) -> Committed:
    return Committed(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp,
        value.topic_id,
    )  # fmt: skip
