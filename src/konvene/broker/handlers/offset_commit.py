"""OffsetCommit: commit offsets of a group.

If the coordinator rejects the request, each partition that exists gets the coordinator's error, and each
missing one an error such as UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_permissions import permits_group, requested_name, split_by_permission
from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.groups.offsets.commit import FIRST_VERSION_WITH_TOPIC_IDS, resolve_topic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.runtime.deferred import Answer, Deferred, then
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.shard.image import Topics


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Answer[OffsetCommitResponse]:
    if authorization.is_enabled:
        return _commit_permitted(authorization, catalogue, groups, request, context)
    return _commit(catalogue, groups, request, context)


def _commit_permitted(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Answer[OffsetCommitResponse]:
    """Commit offsets of the topics that the client may read; reject the others."""
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        error = Errors.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=tuple(_same_error(t, error) for t in request.topics))
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    permitted, denied = split_by_permission(
        authorization,
        context,
        Operation.READ,
        request.topics,
        lambda topic: requested_name(catalogue.topics, topic.name, topic.topic_id, by_id=by_id),
    )
    rejected = tuple(_same_error(topic, Errors.TOPIC_AUTHORIZATION_FAILED) for topic in denied)
    if not permitted:
        return OffsetCommitResponse(topics=rejected)
    committed = _commit(catalogue, groups, request.replace(topics=permitted), context)
    return then(committed, lambda response: response.replace(topics=rejected + response.topics))


def _commit(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> OffsetCommitResponse | Deferred[OffsetCommitResponse]:
    def error_response(error: Errors) -> OffsetCommitResponse:
        topics = tuple(
            _topic_response(catalogue.topics, t, context.api_version, error) for t in request.topics
        )
        return OffsetCommitResponse(topics=topics)

    return submit_to_group_coordinator(groups, request.group_id, request, context, error_response)


def _same_error(topic: OffsetCommitRequestTopic, error: Errors) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
            for p in topic.partitions
        ),
    )


def _topic_response(
    topics: Topics, topic: OffsetCommitRequestTopic, version: int, error: Errors
) -> OffsetCommitResponseTopic:
    found, missing_error = resolve_topic(topics, topic, version)
    partition_count = 0
    if found is not None:
        partition_count, missing_error = found.partitions, Errors.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(
                partition_index=p.partition_index,
                error_code=error if 0 <= p.partition_index < partition_count else missing_error,
            )
            for p in topic.partitions
        ),
    )
