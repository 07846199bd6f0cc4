"""DeleteGroups: delete groups, each by its own coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.errors import Errors
from konvene.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    denied: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        if not permits_group(authorization, context, Operation.DELETE, group_id):
            error = Errors.GROUP_AUTHORIZATION_FAILED
            denied.append(DeletableGroupResult(group_id=group_id, error_code=error))
            continue
        result = await _delete(groups, share_state_work, group_id, context)
        if isinstance(result, Errors):
            results.append(DeletableGroupResult(group_id=group_id, error_code=result))
        else:
            results += result.results
    return DeleteGroupsResponse(results=(*results, *denied))


async def _delete(
    groups: GroupCoordinators, share_state_work: ShareStateWork, group_id: str, context: RequestContext
) -> DeleteGroupsResponse | Errors:
    """Delete a group; if it is a share group, delete its share state first."""
    coordinator = groups.of(group_id)
    if coordinator is None:
        return Errors.NOT_COORDINATOR
    error = await share_state_work.delete_state(coordinator, group_id, context)
    if error is not Errors.NONE:
        return error
    request = DeleteGroupsRequest(groups_names=(group_id,))
    response: DeleteGroupsResponse | Errors = await coordinator.submit(request, context)
    return response
