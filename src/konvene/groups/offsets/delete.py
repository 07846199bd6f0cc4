"""OffsetDelete: a group forgets partitions; not those of topics that its members read.

What does not exist is told so, though the group may have an offset for it from a time when it did. What is
committed in a transaction that is still open is forgotten, too."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.subscriptions import CONSUMER
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.offsets.commit import check_keeps_offsets
from konvene.groups.offsets.committed import OffsetCommitted, Offsets
from konvene.groups.offsets.pending import Pending
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError


def delete(
    groups: Mapping[str, Group],
    offsets: Mapping[str, Offsets],
    pending: Pending,
    request: OffsetDeleteRequest,
    context: Context,
) -> Outcome:
    """Decide an OffsetDelete. Raises `GroupError`."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    group = groups.get(request.group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND)
    check_keeps_offsets(group)
    if isinstance(group, ClassicGroup) and group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        raise GroupError(Errors.NON_EMPTY_GROUP)
    known, open_ = offsets.get(request.group_id, {}), pending.of(request.group_id)
    exists = context.topics.has
    records: list[OffsetCommitted] = []
    answers: dict[str, list[OffsetDeleteResponsePartition]] = {}
    # Kafka answers first for what does not exist, whatever the group thinks of it.
    for topic in request.topics:
        for p in topic.partitions:
            if not exists(topic.name, p.partition_index):
                answer = _answer(p.partition_index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
                answers.setdefault(topic.name, []).append(answer)
    for topic in request.topics:
        subscribed = group_type_of(group).subscribes_to(group, topic.name)
        error = Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE
        committed, held = known.get(topic.name, {}), open_.get(topic.name, {})
        for p in topic.partitions:
            if exists(topic.name, p.partition_index):
                index = p.partition_index
                if not subscribed and (index in committed or index in held):
                    records.append(OffsetCommitted(request.group_id, topic.name, index, None))
                answers.setdefault(topic.name, []).append(_answer(index, error))
    topics = tuple(OffsetDeleteResponseTopic(name=t, partitions=tuple(p)) for t, p in answers.items())
    return Outcome(
        (Reply(context.waiter, OffsetDeleteResponse(topics=topics)),), tuple(dict.fromkeys(records))
    )


def _answer(index: int, error: Errors) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=index, error_code=error)
