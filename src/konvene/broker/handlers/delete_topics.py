"""DeleteTopics: the catalogue decides; the logs are gone when the answer comes."""

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
    answer = await catalogue.submit(request, context)
    if isinstance(answer, Errors):
        asked = [(t.name, t.topic_id) for t in request.topics]
        named = [DeletableTopicResult(name=name, error_code=answer) for name in request.topic_names]
        told = [DeletableTopicResult(name=name, topic_id=id_, error_code=answer) for name, id_ in asked]
        return DeleteTopicsResponse(responses=(*named, *told))
    assert isinstance(answer, DeleteTopicsResponse)
    return answer
