"""A topic is gone: what groups committed for it goes with it.

Only for the topic of that id, or where no id was written down with the offset: one of the same name that was
made since keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.codec.uuid import ZERO_UUID
from konvene.groups.offsets.committed import OffsetCommitted, Offsets
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from konvene.shard.contract import Context, Outcome, Reply


def topics_deleted(offsets: Mapping[str, Offsets], request: DeleteTopicsRequest, context: Context) -> Outcome:
    """Decide what follows from topics that were deleted; each is told by name and id."""
    gone = {topic.name: topic.topic_id for topic in request.topics}
    records = tuple(
        OffsetCommitted(group_id, name, partition, None)
        for group_id, by_topic in offsets.items()
        for name in by_topic
        if name in gone
        for partition, committed in by_topic[name].items()
        if committed.topic_id in (ZERO_UUID, gone[name])
    )
    return Outcome((Reply(context.waiter, DeleteTopicsResponse()),), records)
