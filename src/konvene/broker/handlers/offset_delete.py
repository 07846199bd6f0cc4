"""OffsetDelete: delete committed offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, split_by_permission
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from konvene.runtime.deferred import Answer, Deferred, then
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    groups: GroupCoordinators,
    request: OffsetDeleteRequest,
    context: RequestContext,
) -> Answer[OffsetDeleteResponse]:
    if not permits_group(authorization, context, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    permitted, denied = split_by_permission(
        authorization, context, Operation.READ, request.topics, lambda topic: topic.name
    )
    if not denied:
        return _delete(groups, request, context)
    rejected = tuple(map(_rejected_topic, denied))

    def add_rejected(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        return response if response.error_code else response.replace(topics=rejected + response.topics)

    return then(_delete(groups, request.replace(topics=permitted), context), add_rejected)


def _delete(
    groups: GroupCoordinators, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    return submit_to_group_coordinator(
        groups, request.group_id, request, context, lambda error: OffsetDeleteResponse(error_code=error)
    )


def _rejected_topic(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=tuple(
            OffsetDeleteResponsePartition(
                partition_index=p.partition_index, error_code=Errors.TOPIC_AUTHORIZATION_FAILED
            )
            for p in topic.partitions
        ),
    )
