"""InitializeShareGroupState: begin with share partitions, or begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import ask, is_empty
from konvene.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from konvene.share_state.requests import Initialize

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    share_coordinators: ShareCoordinators, request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    if is_empty(request):
        return InitializeShareGroupStateResponse()
    results = await ask(
        share_coordinators,
        request,
        "initialize share group state",
        lambda key, partition: Initialize(key, partition.state_epoch, partition.start_offset),
    )
    return InitializeShareGroupStateResponse(
        results=tuple(
            InitializeStateResult(
                topic_id=topic_id,
                partitions=tuple(
                    PartitionResult(partition=index, error_code=told.error, error_message=told.message)
                    for index, told in of_topic.items()
                ),
            )
            for topic_id, of_topic in results.items()
        )
    )
