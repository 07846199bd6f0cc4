"""DeleteShareGroupState: delete the state of share partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import (
    denied_results,
    has_empty_topic,
    is_empty,
    submit_each_partition,
    topic_results,
)
from konvene.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from konvene.share_state.requests import Delete

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    share_coordinators: ShareCoordinators,
    request: DeleteShareGroupStateRequest,
    context: RequestContext,
) -> DeleteShareGroupStateResponse:
    denied = denied_results(authorization, request, context)
    if denied is not None:
        return DeleteShareGroupStateResponse(
            results=topic_results(denied, DeleteStateResult, PartitionResult)
        )
    if is_empty(request) or has_empty_topic(request):
        return DeleteShareGroupStateResponse()
    results = await submit_each_partition(
        share_coordinators, request, "delete share group state", lambda key, partition: Delete(key)
    )
    return DeleteShareGroupStateResponse(results=topic_results(results, DeleteStateResult, PartitionResult))
