"""ShareGroupHeartbeat: the group's coordinator decides, and words its refusals itself.

What is decided here is who may ask at all: the feature has to be on, and a client that may not see one of the
topics that it names is told so, as by Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask, share_groups_are_on
from konvene.broker.handlers.share_group_limit import NO_ROOM, has_room
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

LONGEST_MEMBER_ID = 36


def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> Answer[ShareGroupHeartbeatResponse]:
    if not share_groups_are_on(catalogue):
        return _refused(Errors.UNSUPPORTED_VERSION)
    if authorize is not allow_all:
        for resource in denied(catalogue.topics, SHARE_GROUP_HEARTBEAT, request, context, authorize):
            return _refused(resource.authorization_failed)
    if not request.member_id or len(request.member_id) > LONGEST_MEMBER_ID:
        return _refused(Errors.INVALID_REQUEST)
    if request.member_epoch == 0 and not has_room(settings, groups, request.group_id):
        return _refused(Errors.GROUP_MAX_SIZE_REACHED, NO_ROOM)
    if request.member_epoch >= 0:
        groups.heartbeat_received(request.group_id, request.member_id, context.connection)
    return ask(groups, request.group_id, request, context, _refused)


def _refused(error: Errors, why: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=why)
