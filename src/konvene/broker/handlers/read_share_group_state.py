"""ReadShareGroupState: read the state of share partitions for the leader that takes them over."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from konvene.broker.handlers.share_state_requests import (
    denied_results,
    has_empty_topic,
    is_empty,
    submit_each_partition,
    topic_results,
)
from konvene.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from konvene.share_state.requests import Read, StateAnswer

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    share_coordinators: ShareCoordinators,
    request: ReadShareGroupStateRequest,
    context: RequestContext,
) -> ReadShareGroupStateResponse:
    denied = denied_results(authorization, request, context)
    if denied is not None:
        return ReadShareGroupStateResponse(results=topic_results(denied, ReadStateResult, PartitionResult))
    if is_empty(request) or has_empty_topic(request):
        return ReadShareGroupStateResponse()
    results = await submit_each_partition(
        share_coordinators,
        request,
        "read share group state",
        lambda key, partition: Read(key, partition.leader_epoch),
    )
    return ReadShareGroupStateResponse(
        results=topic_results(results, ReadStateResult, PartitionResult, _partition_result)
    )


def _partition_result(index: int, state: StateAnswer) -> PartitionResult:
    # Encoded by attribute: the coordinator's batches have the fields of the message's.
    batches = cast("tuple[StateBatch, ...]", state.batches)
    return PartitionResult(
        partition=index,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=batches,
    )
