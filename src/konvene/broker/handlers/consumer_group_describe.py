"""ConsumerGroupDescribe: each group by its own coordinator (`group_descriptions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_extension
from konvene.broker.handlers.describe_modern_groups import Kind, described_groups, disabled
from konvene.broker.handlers.group_requests import consumer_groups_are_on
from konvene.broker.net.authorizer import Authorizer, allow_all
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


async def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> ConsumerGroupDescribeResponse:
    if not consumer_groups_are_on(settings, catalogue):
        response: ConsumerGroupDescribeResponse = disabled(KIND, request)
        return response
    described = await described_groups(KIND, groups, request, context, authorize)
    return ConsumerGroupDescribeResponse(
        groups=tuple(with_extension(settings, heartbeat_purgatory, groups, request, described))
    )


def _topics(group: DescribedGroup) -> list[str]:
    """The topics of which members have partitions, or are to have them."""
    named = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return sorted(named)


KIND = Kind(
    response=ConsumerGroupDescribeResponse,
    group=DescribedGroup,
    topics=_topics,
    hidden="The group has described topic(s) that the client is not authorized to describe.",
)
