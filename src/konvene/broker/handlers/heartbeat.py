"""Heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import ask
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


def handle(broker: Broker, request: HeartbeatRequest, call: Call) -> Any:
    return ask(broker, request.group_id, request, call, _refused)


def _refused(error: Errors) -> HeartbeatResponse:
    """While the group is being loaded nobody needs to know: the member is taken to be alive."""
    if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = Errors.NONE
    return HeartbeatResponse(error_code=error)
