"""LeaveGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    groups: GroupCoordinators, request: LeaveGroupRequest, context: RequestContext
) -> Answer[LeaveGroupResponse]:
    return ask(groups, request.group_id, request, context, lambda error: LeaveGroupResponse(error_code=error))
