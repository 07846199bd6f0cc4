"""StreamsGroupDescribe: each group by its own coordinator (`group_descriptions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_pending_tasks import with_owed
from konvene.broker.handlers.describe_modern_groups import Kind, described_groups, disabled
from konvene.broker.handlers.group_requests import streams_groups_are_on
from konvene.broker.net.authorizer import Authorizer, allow_all
from konvene.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


async def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: StreamsGroupDescribeRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> StreamsGroupDescribeResponse:
    if not streams_groups_are_on(settings, catalogue):
        response: StreamsGroupDescribeResponse = disabled(KIND, request)
        return response
    described = await described_groups(KIND, groups, request, context, authorize)
    return StreamsGroupDescribeResponse(groups=tuple(with_owed(settings, groups, request, described)))


def _topics(group: DescribedGroup) -> list[str]:
    """The topics that the application uses."""
    named: set[str] = set()
    for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
        named.update(each.source_topics, each.repartition_sink_topics)
        named.update(topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    return sorted(named)


KIND = Kind(
    response=StreamsGroupDescribeResponse,
    group=DescribedGroup,
    topics=_topics,
    hidden="The described group uses topics that the client is not authorized to describe.",
)
