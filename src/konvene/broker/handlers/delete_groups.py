"""DeleteGroups: each group by its own coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call


async def handle(broker: Broker, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        coordinator = broker.groups.of(group_id)
        answer = (
            await coordinator.submit(DeleteGroupsRequest(groups_names=(group_id,)), call)
            if coordinator is not None
            else Errors.NOT_COORDINATOR
        )
        if isinstance(answer, Errors):
            results.append(DeletableGroupResult(group_id=group_id, error_code=answer))
            continue
        assert isinstance(answer, DeleteGroupsResponse)
        results += answer.results
    return DeleteGroupsResponse(results=tuple(results))
