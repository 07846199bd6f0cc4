"""DeleteShareGroupState: forget share partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.share_state_requests import ask, has_an_empty_topic, is_empty
from konvene.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from konvene.share_state.requests import Delete

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.coordinator import RequestContext


async def handle(
    share_coordinators: ShareCoordinators, request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    if is_empty(request) or has_an_empty_topic(request):
        return DeleteShareGroupStateResponse()
    results = await ask(
        share_coordinators, request, "delete share group state", lambda key, partition: Delete(key)
    )
    return DeleteShareGroupStateResponse(
        results=tuple(
            DeleteStateResult(
                topic_id=topic_id,
                partitions=tuple(
                    PartitionResult(partition=index, error_code=told.error, error_message=told.message)
                    for index, told in of_topic.items()
                ),
            )
            for topic_id, of_topic in results.items()
        )
    )
