"""ReadShareGroupStateSummary: read the start offset of share partitions, without state batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import (
    denied_results,
    has_empty_topic,
    is_empty,
    submit_each_partition,
    topic_results,
)
from konvene.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from konvene.share_state.requests import ReadSummary, SummaryAnswer

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    share_coordinators: ShareCoordinators,
    request: ReadShareGroupStateSummaryRequest,
    context: RequestContext,
) -> ReadShareGroupStateSummaryResponse:
    denied = denied_results(authorization, request, context)
    if denied is not None:
        return ReadShareGroupStateSummaryResponse(
            results=topic_results(denied, ReadStateSummaryResult, PartitionResult)
        )
    if is_empty(request) or has_empty_topic(request):
        return ReadShareGroupStateSummaryResponse()
    results = await submit_each_partition(
        share_coordinators,
        request,
        "read share group state summary",
        lambda key, partition: ReadSummary(key, partition.leader_epoch),
    )
    return ReadShareGroupStateSummaryResponse(
        results=topic_results(results, ReadStateSummaryResult, PartitionResult, _partition_result)
    )


def _partition_result(index: int, summary: SummaryAnswer) -> PartitionResult:
    return PartitionResult(
        partition=index,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=summary.start_offset,
        delivery_complete_count=summary.delivery_complete_count,
    )
