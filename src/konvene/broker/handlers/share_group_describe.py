"""ShareGroupDescribe: each group by its own coordinator.

Of a group with topics that the client may not see nothing is told but that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.authorizer import Allows, Operation, Resource, ResourceType, allows
from konvene.broker.handlers.groups_call import share_groups_are_on
from konvene.broker.handlers.operations import GROUP_OPERATIONS
from konvene.broker.heartbeat_notes import with_notes
from konvene.errors import Errors
from konvene.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    broker: Broker, request: ShareGroupDescribeRequest, call: Call, *, asked: Allows = allows
) -> ShareGroupDescribeResponse:
    if not share_groups_are_on(broker):
        no = tuple(_error(group_id, Errors.UNSUPPORTED_VERSION) for group_id in request.group_ids)
        return ShareGroupDescribeResponse(groups=no)
    groups = [await _described(broker, group_id, call, asked) for group_id in request.group_ids]
    if request.include_authorized_operations:
        groups = [
            g.replace(authorized_operations=GROUP_OPERATIONS) if g.error_code == Errors.NONE else g
            for g in groups
        ]
    return ShareGroupDescribeResponse(groups=tuple(with_notes(broker, request, groups)))


async def _described(broker: Broker, group_id: str, call: Call, asked: Allows) -> DescribedGroup:
    if not asked(call, Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id)):
        return _error(group_id, Errors.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _error(group_id, Errors.INVALID_GROUP_ID)
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return _error(group_id, Errors.NOT_COORDINATOR)
    answer = await coordinator.submit(ShareGroupDescribeRequest(group_ids=(group_id,)), call)
    if isinstance(answer, Errors):
        return _error(group_id, answer)
    assert isinstance(answer, ShareGroupDescribeResponse)
    (group,) = answer.groups
    for topic in _topics(group) if asked is not allows else ():
        if not asked(call, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
            return _error(group_id, Errors.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
    return group


def _topics(group: DescribedGroup) -> list[str]:
    """The topics of which members have partitions."""
    return sorted({t.topic_name for member in group.members for t in member.assignment.topic_partitions})


def _error(group_id: str, error: Errors, why: str | None = None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error, error_message=why)
