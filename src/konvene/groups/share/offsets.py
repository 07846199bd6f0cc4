"""AlterShareGroupOffsets and DeleteShareGroupOffsets: set or delete start offsets of share partitions.

The group has to be empty. The share partitions are first recorded as `initializing` or `deleting`; then the
share coordinator changes their state, and the result is recorded (`work`).

Altering offsets bumps the group's epoch (KIP-932), so that the share coordinator fences writes of an earlier
share partition leader, which has an older state epoch. Kafka 4.4 does not bump the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import MESSAGES, Errors
from konvene.groups.modern.group import get_or_throw_group
from konvene.groups.share.decision import Decision
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.state_topics import ListedPartitions, by_topic, keys
from konvene.groups.share.work import (
    BeginDeletion,
    InitializedPartitions,
    OffsetsToAlter,
    OffsetsToDelete,
    StateToDelete,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError
from konvene.share_state.requests import Delete, Initialize, SharePartitionKey

Groups = Mapping[str, object]

NOTHING_TO_DELETE = "There is no offset information to delete."


# --- alter -----------------------------------------------------------------------------------------


def alter(groups: Groups, request: AlterShareGroupOffsetsRequest, context: Context) -> Outcome:
    """Record that start offsets are to be altered; create the group if it does not exist.

    The reply to the shell is an `OffsetsToAlter`, with the requests to the share coordinator.
    """
    try:
        decision = Decision(_to_alter(groups, request.group_id), context)
    except GroupError as refused:
        response = AlterShareGroupOffsetsResponse(error_code=refused.error, error_message=refused.message)
        return Outcome((Reply(context.waiter, OffsetsToAlter(response)),))
    offsets: dict[SharePartitionKey, int] = {}
    # Kafka's response lists unknown topics first.
    topics = sorted(request.topics, key=lambda topic: topic.topic_name in context.topics.by_name)
    responses = tuple(_altered_topic(decision, topic, offsets) for topic in topics)
    requests: tuple[Initialize, ...] = ()
    if offsets:
        decision.cause(causes.OFFSETS_ALTERED)
        decision.bump(decision.metadata_hash)
        decision.assign_nothing()
        listed = by_topic(offsets, context.topics)
        decision.record_state_topics(decision.state_topics.with_initializing(listed))
        decision.remember(
            requested_ms={**decision.soft.requested_ms, **dict.fromkeys(listed, context.now_ms)}
        )
        requests = tuple(Initialize(key, decision.epoch, offset) for key, offset in offsets.items())
    decision.replies.append(
        Reply(context.waiter, OffsetsToAlter(AlterShareGroupOffsetsResponse(responses=responses), requests))
    )
    return decision.outcome()


def _to_alter(groups: Groups, group_id: str) -> ShareGroup:
    group = get_or_throw_group(groups, group_id, ShareGroup) if group_id in groups else ShareGroup(group_id)
    if not group.is_empty:
        raise GroupError(Errors.NON_EMPTY_GROUP, MESSAGES[Errors.NON_EMPTY_GROUP])
    return group


def _altered_topic(
    decision: Decision, topic: AlterShareGroupOffsetsRequestTopic, offsets: dict[SharePartitionKey, int]
) -> AlterShareGroupOffsetsResponseTopic:
    known = decision.context.topics.by_name.get(topic.topic_name)
    responses: dict[int, AlterShareGroupOffsetsResponsePartition] = {}
    for partition in topic.partitions:
        index = partition.partition_index
        if known is not None and 0 <= index < known.partitions:
            offsets[SharePartitionKey(decision.group.group_id, known.id, index)] = partition.start_offset
            responses[index] = AlterShareGroupOffsetsResponsePartition(partition_index=index)
        else:
            responses[index] = AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION],
            )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=known.id if known is not None else ZERO_UUID,
        partitions=tuple(responses.values()),
    )


# --- delete ----------------------------------------------------------------------------------------


def delete(groups: Groups, request: DeleteShareGroupOffsetsRequest, context: Context) -> Outcome:
    """Record that start offsets are to be deleted.

    The reply to the shell is an `OffsetsToDelete`, with the requests to the share coordinator.
    """
    try:
        group = get_or_throw_group(groups, request.group_id, ShareGroup)
        if not group.is_empty:
            raise GroupError(Errors.NON_EMPTY_GROUP, MESSAGES[Errors.NON_EMPTY_GROUP])
    except GroupError as refused:
        response = DeleteShareGroupOffsetsResponse(error_code=refused.error, error_message=refused.message)
        return Outcome((Reply(context.waiter, OffsetsToDelete(response)),))
    decision = Decision(group, context)
    deleted: dict[Uuid, ListedPartitions] = {}
    refused_topics: list[DeleteShareGroupOffsetsResponseTopic] = []
    for name in dict.fromkeys(topic.topic_name for topic in request.topics):
        known = context.topics.by_name.get(name)
        state = group.state_topics
        if known is None:
            refused_topics.append(_not_deleted(name, MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION]))
        elif known.id in state.initialized:
            deleted[known.id] = state.initialized[known.id]
        elif known.id in state.deleting:
            deleted[known.id] = ListedPartitions(name, tuple(range(known.partitions)))
        else:
            refused_topics.append(_not_deleted(name, NOTHING_TO_DELETE))
    after = group.state_topics.with_deleting({topic: some.name for topic, some in deleted.items()})
    if after != group.state_topics:
        decision.record_state_topics(after)
    requests = tuple(Delete(key) for key in keys(group.group_id, deleted))
    response = DeleteShareGroupOffsetsResponse(responses=tuple(refused_topics))
    decision.replies.append(Reply(context.waiter, OffsetsToDelete(response, requests)))
    return decision.outcome()


def _not_deleted(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )


def begin_deletion(groups: Groups, request: BeginDeletion, context: Context) -> Outcome:
    """Record that all share partitions of a group are to be deleted, before the group is deleted itself.

    The reply to the shell is a `StateToDelete`. Raises NON_EMPTY_GROUP.
    """
    group = groups.get(request.group_id)
    if not isinstance(group, ShareGroup):
        return Outcome((Reply(context.waiter, StateToDelete(request.group_id, ())),))
    if not group.is_empty:
        raise GroupError(Errors.NON_EMPTY_GROUP, MESSAGES[Errors.NON_EMPTY_GROUP])
    decision = Decision(group, context)
    deleted = group.state_topics.partitions(group.group_id, context.topics)
    after = group.state_topics.with_all_deleting(context.topics)
    if after != group.state_topics:
        decision.record_state_topics(after)
    state_to_delete = StateToDelete(group.group_id, tuple(Delete(key) for key in deleted))
    decision.replies.append(Reply(context.waiter, state_to_delete))
    return decision.outcome()


# --- query ------------------------------------------------------------------------------------------


def initialized_partitions(groups: Groups, request: InitializedPartitions, context: Context) -> Outcome:
    """Reply with the keys of the initialized share partitions of a group; none if it is no share group."""
    group = groups.get(request.group_id)
    found: tuple[SharePartitionKey, ...] = ()
    if isinstance(group, ShareGroup):
        found = keys(request.group_id, group.state_topics.initialized)
    return Outcome((Reply(context.waiter, found),))
