"""CreatePartitions: add partitions to topics. The catalogue decides and responds once their logs exist."""

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
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return CreatePartitionsResponse(
            results=tuple(CreatePartitionsTopicResult(name=t.name, error_code=result) for t in request.topics)
        )
    assert isinstance(result, CreatePartitionsResponse)
    return result
