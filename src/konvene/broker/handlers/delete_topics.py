"""DeleteTopics: delete topics. The catalogue decides and responds once their logs are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.runtime.coordinator import RequestContext


async def handle(
    catalogue: ClusterCatalogue, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        # Up to version 5 topics are requested as `topic_names`, since then as `topics`.
        by_name = [DeletableTopicResult(name=name, error_code=result) for name in request.topic_names]
        by_name_or_id = [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=result)
            for topic in request.topics
        ]
        return DeleteTopicsResponse(responses=(*by_name, *by_name_or_id))
    assert isinstance(result, DeleteTopicsResponse)
    return result
