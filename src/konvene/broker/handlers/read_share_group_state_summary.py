"""ReadShareGroupStateSummary: how far a group is in share partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.handlers.share_state_requests import ask, has_an_empty_topic, is_empty
from konvene.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from konvene.share_state.requests import ReadSummary

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    share_coordinators: ShareCoordinators, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    if is_empty(request) or has_an_empty_topic(request):
        return ReadShareGroupStateSummaryResponse()
    results = await ask(
        share_coordinators,
        request,
        "read share group state summary",
        lambda key, partition: ReadSummary(key, partition.leader_epoch),
    )
    return ReadShareGroupStateSummaryResponse(
        results=tuple(
            ReadStateSummaryResult(
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
        leader_epoch=told.leader_epoch,
        start_offset=told.start_offset,
        delivery_complete_count=told.delivery_complete_count,
    )
