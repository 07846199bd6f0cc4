"""CreatePartitions: the catalogue decides; the answer comes when the new partitions have their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


async def handle(
    catalogue: ClusterCatalogue, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    answer = await catalogue.submit(request, context)
    if isinstance(answer, Errors):
        return CreatePartitionsResponse(
            results=tuple(CreatePartitionsTopicResult(name=t.name, error_code=answer) for t in request.topics)
        )
    assert isinstance(answer, CreatePartitionsResponse)
    return answer
