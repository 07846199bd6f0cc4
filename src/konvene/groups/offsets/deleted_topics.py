"""A topic is gone: what groups committed for it goes with it.

Only for the topic of that id, or where no id was written down with the offset: one of the same name that was
made since keeps its own. The same for what is committed in transactions that are still open.
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
    """Decide what follows from topics that were deleted; each is told by name and id."""
    gone = {topic.name or "": topic.topic_id for topic in request.topics}
    records = dict.fromkeys(
        OffsetCommitted(group_id, name, partition, None)
        for commits in (_counting(offsets, gone), _open(pending, gone))
        for group_id, name, partition, committed in commits
        if committed.topic_id in (ZERO_UUID, gone[name])
    )
    return Outcome((Reply(context.waiter, DeleteTopicsResponse()),), tuple(records))


Commits = Iterator[tuple[str, str, int, Committed]]


def _counting(offsets: Mapping[str, Offsets], topics: Mapping[str, Uuid]) -> Commits:
    for group_id, by_topic in offsets.items():
        for name in by_topic:
            if name in topics:
                for partition, committed in by_topic[name].items():
                    yield group_id, name, partition, committed


def _open(pending: Pending, topics: Mapping[str, Uuid]) -> Commits:
    for group_id, by_topic in pending.by_group.items():
        for name in by_topic:
            if name in topics:
                for partition, held in by_topic[name].items():
                    for committed in held.values():
                        if committed is not None:
                            yield group_id, name, partition, committed
