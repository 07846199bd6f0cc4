"""OffsetDelete: delete committed offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer


def handle(
    groups: GroupCoordinators, request: OffsetDeleteRequest, context: RequestContext
) -> Answer[OffsetDeleteResponse]:
    return submit_to_group_coordinator(
        groups, request.group_id, request, context, lambda error: OffsetDeleteResponse(error_code=error)
    )
