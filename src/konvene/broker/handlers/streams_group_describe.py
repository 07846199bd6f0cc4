"""StreamsGroupDescribe: describe streams groups, each by its own coordinator (`describe_modern_groups`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.groups.describe_heartbeats import with_extension
from konvene.broker.groups.describe_pending_tasks import with_streams_extension
from konvene.broker.handlers.describe_modern_groups import DescribeSpec, describe_groups, disabled_groups
from konvene.broker.handlers.group_requests import streams_groups_enabled
from konvene.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
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
    request: StreamsGroupDescribeRequest,
    context: RequestContext,
) -> StreamsGroupDescribeResponse:
    if not streams_groups_enabled(settings, catalogue):
        return StreamsGroupDescribeResponse(groups=disabled_groups(SPEC, request))
    described = await describe_groups(SPEC, authorization, groups, request, context)
    described = with_extension(settings, heartbeat_purgatory, groups, request, described)
    return StreamsGroupDescribeResponse(
        groups=tuple(with_streams_extension(settings, groups, request, described))
    )


def _topics(group: DescribedGroup) -> list[str]:
    """Return the source, repartition and changelog topics of the topology."""
    topics: set[str] = set()
    for subtopology in (group.topology.subtopologies or ()) if group.topology is not None else ():
        topics.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        internal = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
        topics.update(topic.name for topic in internal)
    return sorted(topics)


SPEC = DescribeSpec(
    group=DescribedGroup,
    topics=_topics,
    denied_message="The described group uses topics that the client is not authorized to describe.",
)
