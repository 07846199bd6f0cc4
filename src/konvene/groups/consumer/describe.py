"""ConsumerGroupDescribe: return the state, members and assignments of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.consumer.current_assignment import Epochs, Partitions
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.targets import preferred
from konvene.groups.modern.group import get_or_throw_group
from konvene.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from konvene.messages.consumer_group_describe import Member as DescribedMember
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

CLASSIC, CONSUMER = 0, 1
"""The values of MemberType (KIP-1099)."""


def describe(
    groups: Mapping[str, object], request: ConsumerGroupDescribeRequest, context: Context
) -> Outcome:
    """Return the descriptions of the requested groups; a group that is not found gets an error of its own."""
    described = tuple(_described(groups, group_id, context) for group_id in request.group_ids)
    return Outcome((Reply(context.waiter, ConsumerGroupDescribeResponse(groups=described)),))


def _described(groups: Mapping[str, object], group_id: str, context: Context) -> DescribedGroup:
    """Return the description of a group; with GROUP_ID_NOT_FOUND if it is not a consumer group."""
    try:
        group = get_or_throw_group(groups, group_id, ConsumerGroup)
    except GroupError as refused:
        return DescribedGroup(
            group_id=group_id, error_code=Errors.GROUP_ID_NOT_FOUND, error_message=refused.message
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or preferred(group, context).name,
        members=tuple(_member(group, member, context.topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> DescribedMember:
    """Return the description of a member; partitions that it has yet to revoke are still assigned to it."""
    assigned: dict[Uuid, tuple[int, ...]] = {}
    for epochs in (member.current.assigned, member.current.pending_revocation):
        for topic, partitions in epochs.items():
            assigned[topic] = (*assigned.get(topic, ()), *partitions)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(assigned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _assignment(partitions: Partitions | Epochs, topics: Topics) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic,
                topic_name=topics.by_id[topic].name,
                partitions=tuple(sorted(partitions[topic])),
            )
            for topic in sorted(partitions)
            if topic in topics.by_id
        )
    )
