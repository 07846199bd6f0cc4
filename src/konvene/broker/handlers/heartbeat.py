"""Heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    groups: GroupCoordinators, request: HeartbeatRequest, context: RequestContext
) -> Answer[HeartbeatResponse]:
    return ask(groups, request.group_id, request, context, _refused)


def _refused(error: Errors) -> HeartbeatResponse:
    """While the group is being loaded nobody needs to know: the member is taken to be alive."""
    if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = Errors.NONE
    return HeartbeatResponse(error_code=error)
