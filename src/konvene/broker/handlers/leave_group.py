"""LeaveGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import ask
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: LeaveGroupRequest, call: Call) -> Any:
    return ask(broker, request.group_id, request, call, lambda error: LeaveGroupResponse(error_code=error))
