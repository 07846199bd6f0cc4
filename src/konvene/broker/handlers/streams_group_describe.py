"""StreamsGroupDescribe: each group by its own coordinator.

A group is not shown to who may not see it, nor to who may not see a topic of its topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.authorizer import Allows, Operation, Resource, ResourceType, allows
from konvene.broker.handlers.groups_call import streams_groups_are_on
from konvene.broker.handlers.operations import GROUP_OPERATIONS
from konvene.broker.streams_notes import with_owed
from konvene.errors import Errors
from konvene.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

HIDDEN = "The described group uses topics that the client is not authorized to describe."


async def handle(
    broker: Broker, request: StreamsGroupDescribeRequest, call: Call, *, asked: Allows = allows
) -> StreamsGroupDescribeResponse:
    if not streams_groups_are_on(broker):
        no = tuple(_error(group_id, Errors.UNSUPPORTED_VERSION) for group_id in request.group_ids)
        return StreamsGroupDescribeResponse(groups=no)
    groups = [await _described(broker, request, group_id, call, asked) for group_id in request.group_ids]
    if request.include_authorized_operations:
        groups = [
            g.replace(authorized_operations=GROUP_OPERATIONS) if g.error_code == Errors.NONE else g
            for g in groups
        ]
    return StreamsGroupDescribeResponse(groups=tuple(with_owed(broker, request, groups)))


async def _described(
    broker: Broker, request: StreamsGroupDescribeRequest, group_id: str, call: Call, asked: Allows
) -> DescribedGroup:
    if not asked(call, Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id)):
        return _error(group_id, Errors.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _error(group_id, Errors.INVALID_GROUP_ID)
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return _error(group_id, Errors.NOT_COORDINATOR)
    answer = await coordinator.submit(request.replace(group_ids=(group_id,)), call)
    if isinstance(answer, Errors):
        return _error(group_id, answer)
    assert isinstance(answer, StreamsGroupDescribeResponse)
    (group,) = answer.groups
    for topic in _topics(group) if asked is not allows else ():
        if not asked(call, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
            return _error(group_id, Errors.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
    return group


def _topics(group: DescribedGroup) -> list[str]:
    """The topics that the application uses."""
    named: set[str] = set()
    for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
        named.update(each.source_topics, each.repartition_sink_topics)
        named.update(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    return sorted(named)


def _error(group_id: str, error: Errors, why: str | None = None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error, error_message=why)
