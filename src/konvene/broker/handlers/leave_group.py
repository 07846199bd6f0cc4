"""LeaveGroup: remove members from a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    request: LeaveGroupRequest,
    context: RequestContext,
) -> Answer[LeaveGroupResponse]:
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_group_coordinator(
        groups, request.group_id, request, context, lambda error: LeaveGroupResponse(error_code=error)
    )
