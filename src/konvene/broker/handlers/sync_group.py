"""SyncGroup: the answer comes when the leader's assignment is stored.

Since version 5 a request names its group's protocol; one that does not is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask
from konvene.errors import Errors
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    groups: GroupCoordinators, request: SyncGroupRequest, context: RequestContext
) -> Answer[SyncGroupResponse]:
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=Errors.INCONSISTENT_GROUP_PROTOCOL)
    return ask(groups, request.group_id, request, context, lambda error: SyncGroupResponse(error_code=error))
