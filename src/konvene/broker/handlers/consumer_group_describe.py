"""ConsumerGroupDescribe: describe consumer groups, each by its own coordinator (`describe_modern_groups`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_extension
from konvene.broker.handlers.describe_modern_groups import DescribeSpec, describe_groups, disabled_groups
from konvene.broker.handlers.group_requests import consumer_groups_enabled
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    heartbeat_purgatory: HeartbeatPurgatory,
    groups: GroupCoordinators,
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
) -> ConsumerGroupDescribeResponse:
    if not consumer_groups_enabled(settings, catalogue):
        return ConsumerGroupDescribeResponse(groups=disabled_groups(SPEC, request))
    described = await describe_groups(SPEC, authorization, groups, request, context)
    return ConsumerGroupDescribeResponse(
        groups=tuple(with_extension(settings, heartbeat_purgatory, groups, request, described))
    )


def _topics(group: DescribedGroup) -> list[str]:
    """Return the topics of the members' current and target assignments."""
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return sorted(topics)


SPEC = DescribeSpec(
    group=DescribedGroup,
    topics=_topics,
    denied_message="The group has described topic(s) that the client is not authorized to describe.",
)
