"""SyncGroup: distribute the assignment of a classic group.

The coordinator responds when the leader's assignment is durable. Since version 5 a request without the
group's protocol type and name is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    request: SyncGroupRequest,
    context: RequestContext,
) -> Answer[SyncGroupResponse]:
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=Errors.INCONSISTENT_GROUP_PROTOCOL)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_group_coordinator(
        groups, request.group_id, request, context, lambda error: SyncGroupResponse(error_code=error)
    )
