"""OffsetFetch: what a group has committed. Partitions without an offset are told -1, which is no error.

Who asks for what is stable is told UNSTABLE_OFFSET_COMMIT of partitions that open transactions have
committed: what will count is not known yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.groups.offsets.committed import NOT_COMMITTED, Committed, Offsets
from konvene.groups.offsets.pending import Pending, PendingOffsets
from konvene.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from konvene.shard.image import Topics

FIRST_VERSION_WITH_TOPIC_IDS = 10


def fetch(
    offsets: Mapping[str, Offsets],
    pending: Pending,
    request: OffsetFetchRequestGroup,
    version: int,
    topics: Topics,
) -> OffsetFetchResponseGroup:
    """A group's offsets for the asked partitions, or for all where `request.topics` is None.

    `pending`: what is not stable, and wanted so."""
    known, open_ = offsets.get(request.group_id, {}), pending.of(request.group_id)
    if request.topics is None:
        found = _everything(known, open_, version, topics)
    else:
        found = tuple(
            _asked(known, open_, t.name, t.topic_id, t.partition_indexes, version, topics)
            for t in request.topics
        )
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=found)


def _everything(
    known: Offsets, pending: PendingOffsets, version: int, topics: Topics
) -> tuple[OffsetFetchResponseTopics, ...]:
    found = []
    for name, partitions in known.items():
        topic = topics.by_name.get(name)
        if version >= FIRST_VERSION_WITH_TOPIC_IDS and topic is None:
            continue  # A deleted topic has no id by which it could be told.
        topic_id = topic.id if topic else ZERO_UUID
        unstable = pending.get(name, ())
        answers = tuple(
            _unstable(partition) if partition in unstable else _answer(partition, committed)
            for partition, committed in partitions.items()
        )
        found.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers))
    return tuple(found)


def _asked(
    known: Offsets,
    pending: PendingOffsets,
    name: str,
    topic_id: Uuid,
    partitions: tuple[int, ...],
    version: int,
    topics: Topics,
) -> OffsetFetchResponseTopics:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = topics.by_id.get(topic_id)
        if topic is None:
            lost = tuple(_answer(p, NOT_COMMITTED, Errors.UNKNOWN_TOPIC_ID) for p in partitions)
            return OffsetFetchResponseTopics(topic_id=topic_id, partitions=lost)
        name = topic.name
    answers = []
    there, unstable = known.get(name, {}), pending.get(name, ())
    for partition in partitions:
        if partition in unstable:
            answers.append(_unstable(partition))
            continue
        committed = there.get(partition, NOT_COMMITTED)
        if topic_id != ZERO_UUID and committed.topic_id not in (ZERO_UUID, topic_id):
            committed = NOT_COMMITTED  # Committed for a topic of the same name that is gone.
        answers.append(_answer(partition, committed))
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=tuple(answers))


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return _answer(partition, NOT_COMMITTED, Errors.UNSTABLE_OFFSET_COMMIT)


@lru_cache(maxsize=16_384)
def _answer(
    partition: int, committed: Committed, error: Errors = Errors.NONE
) -> OffsetFetchResponsePartitions:
    """Values are shared: whoever watches lag asks for the same offsets again and again."""
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
