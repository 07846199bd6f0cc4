"""ReadShareGroupState: a leader takes share partitions over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.share_state_requests import ask, has_an_empty_topic, is_empty
from konvene.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from konvene.share_state.requests import Read

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    share_coordinators: ShareCoordinators, request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    if is_empty(request) or has_an_empty_topic(request):
        return ReadShareGroupStateResponse()
    results = await ask(
        share_coordinators,
        request,
        "read share group state",
        lambda key, partition: Read(key, partition.leader_epoch),
    )
    return ReadShareGroupStateResponse(
        results=tuple(
            ReadStateResult(
                topic_id=topic_id,
                partitions=tuple(_result(index, told) for index, told in of_topic.items()),
            )
            for topic_id, of_topic in results.items()
        )
    )


def _result(index: int, told: Any) -> PartitionResult:
    if told.error:
        return PartitionResult(partition=index, error_code=told.error, error_message=told.message)
    return PartitionResult(
        partition=index,
        state_epoch=told.state_epoch,
        start_offset=told.start_offset,
        state_batches=told.batches,
    )
