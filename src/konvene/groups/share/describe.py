"""ShareGroupDescribe: return the members and assignments of share groups."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.errors import Errors
from konvene.groups.assignors.share.table import assignor_of
from konvene.groups.modern.group import get_or_throw_group
from konvene.groups.share.group import Member, ShareGroup
from konvene.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from konvene.messages.share_group_describe import Member as DescribedMember
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

Groups = Mapping[str, object]


def describe(groups: Groups, request: ShareGroupDescribeRequest, context: Context) -> Outcome:
    """Return the descriptions of the requested groups; those that are no share groups have an error."""
    described = tuple(_described(groups, group_id, context) for group_id in request.group_ids)
    return Outcome((Reply(context.waiter, ShareGroupDescribeResponse(groups=described)),))


def _described(groups: Groups, group_id: str, context: Context) -> DescribedGroup:
    """Return the description of a group; if it is no share group, one with an error."""
    try:
        group = get_or_throw_group(groups, group_id, ShareGroup)
    except GroupError as refused:
        return DescribedGroup(
            group_id=group_id,
            error_code=Errors.GROUP_ID_NOT_FOUND,
            error_message=refused.message,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_of(context).name,
        members=tuple(_member(member, context.topics) for member in group.members.values()),
    )


def _member(member: Member, topics: Topics) -> DescribedMember:
    assigned = member.current.assigned
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic,
                    topic_name=topics.by_id[topic].name,
                    partitions=tuple(sorted(assigned[topic])),
                )
                for topic in sorted(assigned)
                if topic in topics.by_id
            )
        ),
    )
