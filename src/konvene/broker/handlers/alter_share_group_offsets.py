"""AlterShareGroupOffsets: set the start offsets of an empty share group.

Topics that the client may not read are rejected here and come first in the response. The group's coordinator
decides about the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import share_groups_enabled
from konvene.broker.handlers.share_group_limit import LIMIT_REACHED, may_create_group
from konvene.errors import MESSAGES, Errors
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.background_work import ShareStateWork
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    share_state_work: ShareStateWork,
    request: AlterShareGroupOffsetsRequest,
    context: RequestContext,
) -> AlterShareGroupOffsetsResponse:
    if not share_groups_enabled(catalogue):
        return _error_response(Errors.UNSUPPORTED_VERSION)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        return _error_response(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _error_response(Errors.INVALID_GROUP_ID)
    names = {topic.topic_name for topic in request.topics}
    denied = names - authorization.permitted_topics(context, Operation.READ, sorted(names))
    coordinator = groups.of(request.group_id)
    if coordinator is None:
        return _error_response(Errors.NOT_COORDINATOR)
    if not may_create_group(settings, groups, request.group_id):
        return _error_response(Errors.GROUP_MAX_SIZE_REACHED, LIMIT_REACHED)
    permitted = request.replace(topics=tuple(t for t in request.topics if t.topic_name not in denied))
    response = await share_state_work.alter(coordinator, permitted, context)
    if isinstance(response, Errors):
        return _error_response(response)
    if not denied or response.error_code:
        return response
    return response.replace(responses=(*_denied_topics(catalogue, request, denied), *response.responses))


def _denied_topics(
    catalogue: ClusterCatalogue, request: AlterShareGroupOffsetsRequest, denied: set[str]
) -> list[AlterShareGroupOffsetsResponseTopic]:
    topics_by_name = catalogue.topics.by_name
    results = []
    for topic in request.topics:
        if topic.topic_name not in denied:
            continue
        result = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=tuple(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=p.partition_index,
                    error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
                    error_message=MESSAGES[Errors.TOPIC_AUTHORIZATION_FAILED],
                )
                for p in topic.partitions
            ),
        )
        if topic.topic_name in topics_by_name:
            result = result.replace(topic_id=topics_by_name[topic.topic_name].id)
        results.append(result)
    return results


def _error_response(error: Errors, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or MESSAGES.get(error))
