"""ListGroups: list the groups of all coordinators of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    groups: GroupCoordinators, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    listed: list[ListedGroup] = []
    for coordinator in groups.all():
        result = await coordinator.submit(request, context)
        if isinstance(result, Errors):
            return ListGroupsResponse(error_code=result)
        assert isinstance(result, ListGroupsResponse)
        listed += result.groups
    return ListGroupsResponse(groups=tuple(listed))
