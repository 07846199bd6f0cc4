"""OffsetFetch: return a group's committed offsets. A partition without one gets -1, which is no error.

If stable offsets are required, partitions with pending commits of open transactions get
UNSTABLE_OFFSET_COMMIT: the offset depends on whether the transaction commits.
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
    """Return a group's offsets of the requested partitions, or all if `request.topics` is None.

    `pending`: the pending commits if stable offsets are required, otherwise `NOTHING_PENDING`."""
    known, pending_offsets = offsets.get(request.group_id, {}), pending.of(request.group_id)
    if request.topics is None:
        found = _all_topics(known, pending_offsets, version, topics)
    else:
        found = tuple(
            _requested_topic(known, pending_offsets, t.name, t.topic_id, t.partition_indexes, version, topics)
            for t in request.topics
        )
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=found)


def _all_topics(
    known: Offsets, pending: PendingOffsets, version: int, topics: Topics
) -> tuple[OffsetFetchResponseTopics, ...]:
    found = []
    for name, partitions in known.items():
        topic = topics.by_name.get(name)
        if version >= FIRST_VERSION_WITH_TOPIC_IDS and topic is None:
            continue  # A deleted topic has no id to identify it in the response.
        topic_id = topic.id if topic else ZERO_UUID
        unstable = pending.get(name, ())
        responses = tuple(
            _unstable(partition) if partition in unstable else _response(partition, committed)
            for partition, committed in partitions.items()
        )
        found.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=responses))
    return tuple(found)


def _requested_topic(
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
            unknown = tuple(_response(p, NOT_COMMITTED, Errors.UNKNOWN_TOPIC_ID) for p in partitions)
            return OffsetFetchResponseTopics(topic_id=topic_id, partitions=unknown)
        name = topic.name
    responses = []
    by_partition, unstable = known.get(name, {}), pending.get(name, ())
    for partition in partitions:
        if partition in unstable:
            responses.append(_unstable(partition))
            continue
        committed = by_partition.get(partition, NOT_COMMITTED)
        if topic_id != ZERO_UUID and committed.topic_id not in (ZERO_UUID, topic_id):
            committed = NOT_COMMITTED  # Committed for a deleted topic of the same name.
        responses.append(_response(partition, committed))
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=tuple(responses))


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return _response(partition, NOT_COMMITTED, Errors.UNSTABLE_OFFSET_COMMIT)


@lru_cache(maxsize=16_384)
def _response(
    partition: int, committed: Committed, error: Errors = Errors.NONE
) -> OffsetFetchResponsePartitions:
    """Return a partition's response. Equal responses are one cached object."""
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
