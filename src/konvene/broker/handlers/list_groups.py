"""ListGroups: list the groups of all coordinators of this broker that the client may describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from konvene.security.resources import Operation, group

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    request: ListGroupsRequest,
    context: RequestContext,
) -> ListGroupsResponse:
    describes_all = authorization.permits_cluster(context, Operation.DESCRIBE, logs_denied=False)
    listed: list[ListedGroup] = []
    for coordinator in groups.all():
        result = await coordinator.submit(request, context)
        if isinstance(result, Errors):
            return ListGroupsResponse(error_code=result)
        assert isinstance(result, ListGroupsResponse)
        listed += result.groups
    if not describes_all:
        listed = [
            each
            for each in listed
            if authorization.permits(context, Operation.DESCRIBE, group(each.group_id), logs_denied=False)
        ]
    return ListGroupsResponse(groups=tuple(listed))
