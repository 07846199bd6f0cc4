"""JoinGroup: join a classic group. The coordinator responds when the rebalance completes the join phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.join_group import JoinGroupRequest, JoinGroupResponse
from konvene.runtime.deferred import Answer, then
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

FIRST_VERSION_WITH_NULL_PROTOCOL = 7

ERRORS_WITH_MEMBER_ID = frozenset(
    {
        Errors.INVALID_GROUP_ID,
        Errors.INVALID_SESSION_TIMEOUT,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.FENCED_INSTANCE_ID,
    }
)
"""Errors whose response repeats the member id of the request; with others it is empty."""


def handle(
    environment: Environment,
    authorization: Authorization,
    groups: GroupCoordinators,
    request: JoinGroupRequest,
    context: RequestContext,
) -> Answer[JoinGroupResponse]:
    def error_response(error: Errors) -> JoinGroupResponse:
        member_id = request.member_id if error in ERRORS_WITH_MEMBER_ID else ""
        return JoinGroupResponse(member_id=member_id, error_code=error, protocol_name=None)

    response: Answer[JoinGroupResponse]
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        response = error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    else:
        context = context._replace(fresh_ids=(str(environment.fresh_uuid()),))
        response = submit_to_group_coordinator(groups, request.group_id, request, context, error_response)
    if context.api_version >= FIRST_VERSION_WITH_NULL_PROTOCOL:
        return response
    return then(response, _with_protocol_name)


def _with_protocol_name(response: JoinGroupResponse) -> JoinGroupResponse:
    """Replace a null protocol name by an empty one, because some versions cannot encode null."""
    return response if response.protocol_name is not None else response.replace(protocol_name="")
