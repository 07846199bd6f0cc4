"""CreateTopics: create topics. The catalogue decides and responds once the partitions' logs exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment


async def handle(
    environment: Environment,
    catalogue: ClusterCatalogue,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreateTopicsResponse:
    with_ids = context._replace(fresh_ids=environment.fresh_ids(len(request.topics)))
    result = await catalogue.submit(request, with_ids)
    if isinstance(result, Errors):
        return CreateTopicsResponse(
            topics=tuple(CreatableTopicResult(name=t.name, error_code=result) for t in request.topics)
        )
    assert isinstance(result, CreateTopicsResponse)
    return result
