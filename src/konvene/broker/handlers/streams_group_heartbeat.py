"""StreamsGroupHeartbeat: admit the heartbeat of a streams group member and submit it to the coordinator.

A heartbeat is admitted if the streams protocol is enabled, the topology has valid topic names and no internal
topics of the broker, and the client is authorized for the group and for every topic of the topology. The
coordinator builds all other error responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import streams_groups_enabled, submit_to_group_coordinator
from konvene.broker.net.authorizer import Authorizer, allow_all
from konvene.errors import Errors
from konvene.groups.streams.validate import check_names, named_topics
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.security.resources import Operation, Resource, ResourceType
from konvene.shard.errors import GroupError

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[StreamsGroupHeartbeatResponse]:
    if not streams_groups_enabled(settings, catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.READ, Resource(ResourceType.GROUP, request.group_id)):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    if request.topology is not None:
        try:
            check_names(request)
        except GroupError as rejected:
            return _error_response(rejected.error, rejected.message)
        for topic in named_topics(request) if authorize is not allow_all else ():
            if not authorize(context, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)):
                return _error_response(Errors.TOPIC_AUTHORIZATION_FAILED)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
