"""ShareGroupHeartbeat: admit the heartbeat of a share group member and submit it to the coordinator.

A heartbeat is admitted if share groups are enabled, the client is authorized for the group and for every
topic that the request names, the member id is valid, and a new group stays within `group.share.max.groups`.
The coordinator builds all other error responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, permits_topics
from konvene.broker.handlers.group_requests import share_groups_enabled, submit_to_group_coordinator
from konvene.broker.handlers.share_group_limit import LIMIT_REACHED, may_create_group
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer

MAX_MEMBER_ID_LENGTH = 36


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
) -> Answer[ShareGroupHeartbeatResponse]:
    if not share_groups_enabled(catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        return _error_response(Errors.INVALID_REQUEST)
    if not permits_topics(authorization, context, request.subscribed_topic_names or ()):
        return _error_response(Errors.TOPIC_AUTHORIZATION_FAILED)
    if request.member_epoch == 0 and not may_create_group(settings, groups, request.group_id):
        return _error_response(Errors.GROUP_MAX_SIZE_REACHED, LIMIT_REACHED)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)
