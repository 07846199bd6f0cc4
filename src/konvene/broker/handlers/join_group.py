"""JoinGroup: the answer comes when the generation is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.group_requests import ask
from konvene.errors import Errors
from konvene.messages.join_group import JoinGroupRequest, JoinGroupResponse
from konvene.runtime.deferred import Answer, then

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

FIRST_VERSION_WITH_NULL_PROTOCOL = 7

WITH_MEMBER_ID = frozenset(
    {
        Errors.INVALID_GROUP_ID,
        Errors.INVALID_SESSION_TIMEOUT,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.FENCED_INSTANCE_ID,
    }
)
"""Refusals that are told to the member that asked; the others are told to whom it may concern."""


def handle(
    environment: Environment, groups: GroupCoordinators, request: JoinGroupRequest, context: RequestContext
) -> Answer[JoinGroupResponse]:
    fresh = context._replace(fresh_ids=(str(environment.fresh_uuid()),))

    def refused(error: Errors) -> JoinGroupResponse:
        member_id = request.member_id if error in WITH_MEMBER_ID else ""
        return JoinGroupResponse(member_id=member_id, error_code=error, protocol_name=None)

    answer = ask(groups, request.group_id, request, fresh, refused)
    if context.api_version >= FIRST_VERSION_WITH_NULL_PROTOCOL:
        return answer
    return then(answer, _older)


def _older(response: Any) -> Any:
    """Older clients cannot read that there is no protocol."""
    return response if response.protocol_name is not None else response.replace(protocol_name="")
