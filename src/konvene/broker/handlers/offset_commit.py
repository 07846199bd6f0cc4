"""OffsetCommit: commit offsets of a group.

If the coordinator rejects the request, each partition that exists gets the coordinator's error, and each
missing one an error such as UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import submit_to_group_coordinator
from konvene.errors import Errors
from konvene.groups.offsets.commit import resolve_topic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer
    from konvene.shard.image import Topics


def handle(
    catalogue: ClusterCatalogue,
    groups: GroupCoordinators,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Answer[OffsetCommitResponse]:
    def error_response(error: Errors) -> OffsetCommitResponse:
        topics = tuple(
            _topic_response(catalogue.topics, t, context.api_version, error) for t in request.topics
        )
        return OffsetCommitResponse(topics=topics)

    return submit_to_group_coordinator(groups, request.group_id, request, context, error_response)


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
