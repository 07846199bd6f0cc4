"""ShareGroupHeartbeat: admit the heartbeat of a share group member and submit it to the coordinator.

A heartbeat is admitted if share groups are enabled, the client is authorized for the group and for every
topic that the request names, the member id is valid, and a new group stays within `group.share.max.groups`.
The coordinator builds all other error responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import share_groups_enabled, submit_to_group_coordinator
from konvene.broker.handlers.share_group_limit import LIMIT_REACHED, may_create_group
from konvene.broker.net.authorizer import Authorizer, allow_all, denied
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer

SHARE_GROUP_HEARTBEAT = 76

MAX_MEMBER_ID_LENGTH = 36


def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[ShareGroupHeartbeatResponse]:
    if not share_groups_enabled(catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if authorize is not allow_all:
        for resource in denied(catalogue.topics, SHARE_GROUP_HEARTBEAT, request, context, authorize):
            return _error_response(resource.authorization_failed)
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        return _error_response(Errors.INVALID_REQUEST)
    if request.member_epoch == 0 and not may_create_group(settings, groups, request.group_id):
        return _error_response(Errors.GROUP_MAX_SIZE_REACHED, LIMIT_REACHED)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)
