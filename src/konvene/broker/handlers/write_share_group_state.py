"""WriteShareGroupState: what became of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import ask, has_an_empty_topic, is_empty
from konvene.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from konvene.share_state.requests import SharePartitionKey, StateBatch, Write

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    share_coordinators: ShareCoordinators, request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    if is_empty(request) or has_an_empty_topic(request):
        return WriteShareGroupStateResponse()
    results = await ask(share_coordinators, request, "write share group state", _write)
    return WriteShareGroupStateResponse(
        results=tuple(
            WriteStateResult(
                topic_id=topic_id,
                partitions=tuple(
                    PartitionResult(partition=index, error_code=told.error, error_message=told.message)
                    for index, told in of_topic.items()
                ),
            )
            for topic_id, of_topic in results.items()
        )
    )


def _write(key: SharePartitionKey, told: PartitionData) -> Write:
    return Write(
        key,
        told.state_epoch,
        told.leader_epoch,
        told.start_offset,
        told.delivery_complete_count,
        tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in told.state_batches
        ),
    )
