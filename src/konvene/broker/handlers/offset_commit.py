"""OffsetCommit: refused as a whole, every partition is told so, but for those that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import ask
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
    def refused(error: Errors) -> OffsetCommitResponse:
        topics = tuple(_refused(catalogue.topics, t, context.api_version, error) for t in request.topics)
        return OffsetCommitResponse(topics=topics)

    return ask(groups, request.group_id, request, context, refused)


def _refused(
    topics: Topics, topic: OffsetCommitRequestTopic, version: int, error: Errors
) -> OffsetCommitResponseTopic:
    known, missing = resolve_topic(topics, topic, version)
    there = 0
    if known is not None:
        there, missing = known.partitions, Errors.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(
                partition_index=p.partition_index,
                error_code=error if 0 <= p.partition_index < there else missing,
            )
            for p in topic.partitions
        ),
    )
