"""DeleteTopics: delete topics. The catalogue decides and responds once their logs are deleted.

A topic needs DELETE on the cluster, or DELETE and DESCRIBE on itself. Without DESCRIBE the response does not
show whether a topic of that name exists, nor the name of a topic that is requested by id. Denied topics come
last; Kafka's order is random.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.broker.net.client_quotas import within_mutation_quota
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import MESSAGES, Errors
from konvene.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


FIRST_VERSION_WITH_IDS = 6

FIRST_STRICT_VERSION = 5
"""Since this version a request that exceeds the client's quota is rejected."""


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> DeleteTopicsResponse:
    return await within_mutation_quota(
        context,
        lambda limited: _delete_permitted(authorization, settings, catalogue, request, limited),
        first_strict_version=FIRST_STRICT_VERSION,
    )


async def _delete_permitted(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> DeleteTopicsResponse:
    is_permitted = authorization.permits_cluster(context, Operation.DELETE, logs_denied=False)
    if is_permitted or not settings.config["delete.topic.enable"]:
        return await _delete(catalogue, request, context)
    with_ids = context.api_version >= FIRST_VERSION_WITH_IDS
    requested = request.topics if with_ids else tuple(DeleteTopicState(name=n) for n in request.topic_names)
    denied = _denied(authorization, catalogue, requested, context)
    permitted = tuple(topic for topic, result in zip(requested, denied, strict=True) if result is None)
    remaining = (
        request.replace(topics=permitted)
        if with_ids
        else request.replace(topic_names=tuple(topic.name for topic in permitted))
    )
    deleted = await _delete(catalogue, remaining, context)
    return DeleteTopicsResponse(
        responses=(*deleted.responses, *(result for result in denied if result is not None))
    )


def _denied(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    requested: tuple[DeleteTopicState, ...],
    context: RequestContext,
) -> list[DeletableTopicResult | None]:
    """Return the result of each requested topic that the client may not delete, None for the others.

    Also None for an id of no topic, and for an invalid request: those need no permission."""
    counts = Counter((topic.name, topic.topic_id) for topic in requested)
    names = [
        None if counts[topic.name, topic.topic_id] > 1 else _name(catalogue, topic) for topic in requested
    ]
    existing = [name for name in names if name is not None]
    describable = authorization.permitted_topics(context, Operation.DESCRIBE, existing)
    deletable = authorization.permitted_topics(context, Operation.DELETE, existing)
    results: list[DeletableTopicResult | None] = []
    for topic, name in zip(requested, names, strict=True):
        is_by_name = topic.name is not None
        is_unknown = is_by_name and name not in catalogue.topics.by_name
        may_see = name in describable
        if name is None or (name in deletable and (may_see or not is_by_name)) or (may_see and is_unknown):
            results.append(None)
            continue
        results.append(
            DeletableTopicResult(
                name=name if is_by_name or may_see else None,
                topic_id=topic.topic_id,
                error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
                error_message=MESSAGES[Errors.TOPIC_AUTHORIZATION_FAILED],
            )
        )
    return results


def _name(catalogue: ClusterCatalogue, topic: DeleteTopicState) -> str | None:
    """Return the name of a requested topic; None if its id is unknown or the request is invalid."""
    if topic.name is None:
        found = catalogue.topics.by_id.get(topic.topic_id)
        return None if found is None else found.name
    return topic.name if topic.topic_id == ZERO_UUID else None


async def _delete(
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
