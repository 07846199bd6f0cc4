"""ListGroups: what all coordinators of this broker have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call


async def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    groups: list[ListedGroup] = []
    for coordinator in broker.groups.all():
        answer = await coordinator.submit(request, call)
        if isinstance(answer, Errors):
            return ListGroupsResponse(error_code=answer)
        assert isinstance(answer, ListGroupsResponse)
        groups += answer.groups
    return ListGroupsResponse(groups=tuple(groups))
