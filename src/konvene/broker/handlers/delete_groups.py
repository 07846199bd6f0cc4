"""DeleteGroups: each group by its own coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext


async def handle(
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        answer = await _deleted(groups, share_state_work, group_id, context)
        if isinstance(answer, Errors):
            results.append(DeletableGroupResult(group_id=group_id, error_code=answer))
            continue
        assert isinstance(answer, DeleteGroupsResponse)
        results += answer.results
    return DeleteGroupsResponse(results=tuple(results))


async def _deleted(
    groups: GroupCoordinators, share_state_work: ShareStateWork, group_id: str, context: RequestContext
) -> Any:
    """A share group goes when the share coordinator has forgotten all of it."""
    coordinator = groups.of(group_id)
    if coordinator is None:
        return Errors.NOT_COORDINATOR
    error = await share_state_work.delete_state(coordinator, group_id, context)
    if error is not Errors.NONE:
        return error
    return await coordinator.submit(DeleteGroupsRequest(groups_names=(group_id,)), context)
