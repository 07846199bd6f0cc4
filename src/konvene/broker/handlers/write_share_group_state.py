"""WriteShareGroupState: persist the delivery state (state batches) of share partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import (
    denied_results,
    has_empty_topic,
    is_empty,
    submit_each_partition,
    topic_results,
)
from konvene.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from konvene.share_state.requests import SharePartitionKey, StateBatch, Write

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    share_coordinators: ShareCoordinators,
    request: WriteShareGroupStateRequest,
    context: RequestContext,
) -> WriteShareGroupStateResponse:
    denied = denied_results(authorization, request, context)
    if denied is not None:
        return WriteShareGroupStateResponse(results=topic_results(denied, WriteStateResult, PartitionResult))
    if is_empty(request) or has_empty_topic(request):
        return WriteShareGroupStateResponse()
    results = await submit_each_partition(share_coordinators, request, "write share group state", _write)
    return WriteShareGroupStateResponse(results=topic_results(results, WriteStateResult, PartitionResult))


def _write(key: SharePartitionKey, data: PartitionData) -> Write:
    return Write(
        key,
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in data.state_batches
        ),
    )
