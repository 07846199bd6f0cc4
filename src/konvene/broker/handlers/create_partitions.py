"""CreatePartitions: add partitions to topics. The catalogue decides and responds once their logs exist."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.broker.net.client_quotas import within_mutation_quota
from konvene.errors import Errors
from konvene.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext

FIRST_STRICT_VERSION = 3
"""Since this version a request that exceeds the client's quota is rejected."""


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsResponse:
    return await within_mutation_quota(
        context,
        lambda limited: _create_permitted(authorization, catalogue, request, limited),
        first_strict_version=FIRST_STRICT_VERSION,
    )


async def _create_permitted(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsResponse:
    if not authorization.is_enabled:
        return await _create(catalogue, request, context)
    # Kafka rejects duplicates before it checks permissions.
    names = [name for name, count in Counter(t.name for t in request.topics).items() if count == 1]
    permitted = authorization.permitted_topics(context, Operation.ALTER, names)
    denied = [name for name in names if name not in permitted]
    remaining = tuple(t for t in request.topics if t.name not in denied)
    response = await _create(catalogue, request.replace(topics=remaining), context)
    error = Errors.TOPIC_AUTHORIZATION_FAILED
    results = tuple(CreatePartitionsTopicResult(name=name, error_code=error) for name in denied)
    return response.replace(results=(*results, *response.results))


async def _create(
    catalogue: ClusterCatalogue, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    result = await catalogue.submit(request, context)
    if isinstance(result, Errors):
        return CreatePartitionsResponse(
            results=tuple(CreatePartitionsTopicResult(name=t.name, error_code=result) for t in request.topics)
        )
    assert isinstance(result, CreatePartitionsResponse)
    return result
