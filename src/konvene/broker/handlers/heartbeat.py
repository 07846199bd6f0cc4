"""Heartbeat: renew the session of a classic group member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    request: HeartbeatRequest,
    context: RequestContext,
) -> Answer[HeartbeatResponse]:
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    return submit_to_group_coordinator(groups, request.group_id, request, context, _error_response)


def _error_response(error: Errors) -> HeartbeatResponse:
    """Return a response with an error; with none if the coordinator is loading its log, as in Kafka."""
    if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
        error = Errors.NONE
    return HeartbeatResponse(error_code=error)
