"""Deletion of the offsets that groups committed for a deleted topic.

Only offsets with the topic's id, or without any, are deleted: a new topic of the same name keeps its own. The
same applies to pending offsets of open transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.groups.offsets.committed import Committed, OffsetCommitted, Offsets
from konvene.groups.offsets.pending import Pending
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from konvene.shard.contract import Context, Outcome, Reply


def topics_deleted(
    offsets: Mapping[str, Offsets], pending: Pending, request: DeleteTopicsRequest, context: Context
) -> Outcome:
    """Record tombstones for the offsets of the deleted topics, which the request names by name and id."""
    deleted = {topic.name or "": topic.topic_id for topic in request.topics}
    records = dict.fromkeys(
        OffsetCommitted(group_id, name, partition, None)
        for commits in (_committed(offsets, deleted), _pending(pending, deleted))
        for group_id, name, partition, committed in commits
        if committed.topic_id in (ZERO_UUID, deleted[name])
    )
    return Outcome((Reply(context.waiter, DeleteTopicsResponse()),), tuple(records))


Commits = Iterator[tuple[str, str, int, Committed]]


def _committed(offsets: Mapping[str, Offsets], topics: Mapping[str, Uuid]) -> Commits:
    for group_id, by_topic in offsets.items():
        for name in by_topic:
            if name in topics:
                for partition, committed in by_topic[name].items():
                    yield group_id, name, partition, committed


def _pending(pending: Pending, topics: Mapping[str, Uuid]) -> Commits:
    for group_id, by_topic in pending.by_group.items():
        for name in by_topic:
            if name in topics:
                for partition, by_producer in by_topic[name].items():
                    for committed in by_producer.values():
                        if committed is not None:
                            yield group_id, name, partition, committed
