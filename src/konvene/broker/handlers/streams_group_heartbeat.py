"""StreamsGroupHeartbeat: admit the heartbeat of a streams group member and submit it to the coordinator.

A heartbeat is admitted if the streams protocol is enabled, the topology has valid topic names and no internal
topics of the broker, and the client is authorized for the group and for every topic of the topology. The
coordinator builds all other error responses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from konvene.broker.groups.internal_topics import denied_topics
from konvene.broker.handlers.group_permissions import permits_group, permits_topics
from konvene.broker.handlers.group_requests import streams_groups_enabled, submit_to_group_coordinator
from konvene.errors import Errors
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import Status
from konvene.groups.streams.topology.internal_topics import unauthorized_detail
from konvene.groups.streams.validate import check_names, named_topics
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.runtime.deferred import Answer, then
from konvene.security.resources import Operation
from konvene.shard.errors import GroupError

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
) -> Answer[StreamsGroupHeartbeatResponse]:
    if not streams_groups_enabled(settings, catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    if request.topology is not None:
        try:
            check_names(request)
        except GroupError as rejected:
            return _error_response(rejected.error, rejected.message)
        if authorization.is_enabled and not permits_topics(authorization, context, named_topics(request)):
            return _error_response(Errors.TOPIC_AUTHORIZATION_FAILED)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    response = submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)
    if not authorization.is_enabled:
        return response
    return then(response, partial(_with_denied_creation, authorization, groups, context, request.group_id))


def _with_denied_creation(
    authorization: Authorization,
    groups: GroupCoordinators,
    context: RequestContext,
    group_id: str,
    response: StreamsGroupHeartbeatResponse,
) -> StreamsGroupHeartbeatResponse:
    """Add the missing internal topics that the client may not create to the status that they are missing."""
    statuses = response.status or ()
    codes = [status.status_code for status in statuses]
    if Status.MISSING_INTERNAL_TOPICS not in codes:
        return response
    group = groups.find(group_id)
    configured = group.soft.configured if isinstance(group, StreamsGroup) else None
    if configured is None:
        return response
    denied = denied_topics(authorization, context, configured.missing)
    if not denied:
        return response
    index = codes.index(Status.MISSING_INTERNAL_TOPICS)
    detail = statuses[index].status_detail + unauthorized_detail(denied)
    changed = statuses[index].replace(status_detail=detail)
    return response.replace(status=(*statuses[:index], changed, *statuses[index + 1 :]))


def _error_response(error: Errors, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
