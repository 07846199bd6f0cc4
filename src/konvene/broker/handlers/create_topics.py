"""CreateTopics: the catalogue decides; the answer comes when the partitions have their logs."""

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
    fresh = context._replace(fresh_ids=environment.fresh_ids(len(request.topics)))
    answer = await catalogue.submit(request, fresh)
    if isinstance(answer, Errors):
        return CreateTopicsResponse(
            topics=tuple(CreatableTopicResult(name=t.name, error_code=answer) for t in request.topics)
        )
    assert isinstance(answer, CreateTopicsResponse)
    return answer
