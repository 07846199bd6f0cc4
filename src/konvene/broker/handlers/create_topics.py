"""CreateTopics: create topics. The catalogue decides and responds once the partitions' logs exist.

A topic needs CREATE on the cluster or on itself. Without DESCRIBE_CONFIGS on a topic, its result has neither
configs nor numbers of partitions and replicas. Names that are invalid in any case need no permission.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.broker.net.client_quotas import within_mutation_quota
from konvene.errors import Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC
from konvene.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

FIRST_STRICT_VERSION = 6
"""Since this version a request that exceeds the client's quota is rejected."""


async def handle(
    authorization: Authorization,
    environment: Environment,
    catalogue: ClusterCatalogue,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreateTopicsResponse:
    return await within_mutation_quota(
        context,
        lambda limited: _create_permitted(authorization, environment, catalogue, request, limited),
        first_strict_version=FIRST_STRICT_VERSION,
    )


async def _create_permitted(
    authorization: Authorization,
    environment: Environment,
    catalogue: ClusterCatalogue,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreateTopicsResponse:
    if not authorization.is_enabled:
        return await _create(environment, catalogue, request, context)
    counts = Counter(t.name for t in request.topics)
    names = [n for n, count in counts.items() if count == 1 and n != CLUSTER_METADATA_TOPIC]
    if authorization.permits_cluster(context, Operation.CREATE, logs_denied=False):
        creatable = set(names)
    else:
        creatable = authorization.permitted_topics(context, Operation.CREATE, names)
    describable = authorization.permitted_topics(
        context, Operation.DESCRIBE_CONFIGS, names, logs_denied=False
    )
    denied = [name for name in names if name not in creatable]
    permitted = tuple(t for t in request.topics if t.name not in denied)
    response = await _create(environment, catalogue, request.replace(topics=permitted), context)
    return CreateTopicsResponse(
        topics=(
            *(t if t.error_code or t.name in describable else _without_configs(t) for t in response.topics),
            *(_denied(name) for name in denied),
        )
    )


def _without_configs(created: CreatableTopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.topic_id,
        topic_config_error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
        configs=(),
    )


def _denied(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
        error_message="Authorization failed.",
        configs=(),
    )


async def _create(
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
