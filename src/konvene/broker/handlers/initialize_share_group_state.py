"""InitializeShareGroupState: initialize share partitions, or reset them to another start offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import (
    denied_results,
    is_empty,
    submit_each_partition,
    topic_results,
)
from konvene.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from konvene.share_state.requests import Initialize

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    share_coordinators: ShareCoordinators,
    request: InitializeShareGroupStateRequest,
    context: RequestContext,
) -> InitializeShareGroupStateResponse:
    denied = denied_results(authorization, request, context)
    if denied is not None:
        return InitializeShareGroupStateResponse(
            results=topic_results(denied, InitializeStateResult, PartitionResult)
        )
    if is_empty(request):
        return InitializeShareGroupStateResponse()
    results = await submit_each_partition(
        share_coordinators,
        request,
        "initialize share group state",
        lambda key, partition: Initialize(key, partition.state_epoch, partition.start_offset),
    )
    return InitializeShareGroupStateResponse(
        results=topic_results(results, InitializeStateResult, PartitionResult)
    )
