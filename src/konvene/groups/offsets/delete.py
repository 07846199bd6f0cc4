"""OffsetDelete: a group forgets partitions; not those of topics that its members read."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.subscriptions import CONSUMER, subscribes_to
from konvene.groups.offsets.committed import OffsetCommitted, Offsets
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError


def delete(
    groups: Mapping[str, ClassicGroup],
    offsets: Mapping[str, Offsets],
    request: OffsetDeleteRequest,
    context: Context,
) -> Outcome:
    """Decide an OffsetDelete. Raises `GroupError`."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    group = groups.get(request.group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND)
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        raise GroupError(Errors.NON_EMPTY_GROUP)
    known = offsets.get(request.group_id, {})
    records: list[OffsetCommitted] = []
    topics = []
    for topic in request.topics:
        subscribed = subscribes_to(group, topic.name)
        error = Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE
        answers = []
        committed = known.get(topic.name, {})
        for p in topic.partitions:
            if not subscribed and p.partition_index in committed:
                records.append(OffsetCommitted(request.group_id, topic.name, p.partition_index, None))
            answers.append(OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=error))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(answers)))
    reply = Reply(context.waiter, OffsetDeleteResponse(topics=tuple(topics)))
    return Outcome((reply,), tuple(dict.fromkeys(records)))
