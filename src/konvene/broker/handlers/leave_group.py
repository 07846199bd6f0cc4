"""LeaveGroup: remove members from a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    groups: GroupCoordinators, request: LeaveGroupRequest, context: RequestContext
) -> Answer[LeaveGroupResponse]:
    return submit_to_group_coordinator(
        groups, request.group_id, request, context, lambda error: LeaveGroupResponse(error_code=error)
    )
