"""OffsetDelete: delete a group's offsets, except for topics that its members subscribe to.

A partition that does not exist gets an error, even if the group has an offset from when it existed. Pending
offsets of open transactions are deleted as well.
"""

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
    """Record the tombstones of the requested offsets, and respond for each partition.

    Raises `GroupError` if the request is rejected as a whole."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    group = groups.get(request.group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND)
    check_keeps_offsets(group)
    if isinstance(group, ClassicGroup) and group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        raise GroupError(Errors.NON_EMPTY_GROUP)
    known, pending_offsets = offsets.get(request.group_id, {}), pending.of(request.group_id)
    exists = context.topics.has
    records: list[OffsetCommitted] = []
    responses: dict[str, list[OffsetDeleteResponsePartition]] = {}
    # As in Kafka, partitions that do not exist come first in the response, whatever is subscribed.
    for topic in request.topics:
        for p in topic.partitions:
            if not exists(topic.name, p.partition_index):
                response = _response(p.partition_index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
                responses.setdefault(topic.name, []).append(response)
    for topic in request.topics:
        subscribed = group_type_of(group).subscribes_to(group, topic.name)
        error = Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE
        committed, uncommitted = known.get(topic.name, {}), pending_offsets.get(topic.name, {})
        for p in topic.partitions:
            if exists(topic.name, p.partition_index):
                index = p.partition_index
                if not subscribed and (index in committed or index in uncommitted):
                    records.append(OffsetCommitted(request.group_id, topic.name, index, None))
                responses.setdefault(topic.name, []).append(_response(index, error))
    topics = tuple(OffsetDeleteResponseTopic(name=t, partitions=tuple(p)) for t, p in responses.items())
    return Outcome(
        (Reply(context.waiter, OffsetDeleteResponse(topics=topics)),), tuple(dict.fromkeys(records))
    )


def _response(index: int, error: Errors) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=index, error_code=error)
