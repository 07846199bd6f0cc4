"""OffsetForLeaderEpoch: return the end offset of a leader epoch, for clients that validate positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Refused
from konvene.errors import Errors
from konvene.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    partitions: Partitions,
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    permitted = {t.topic for t in request.topics}
    if not authorization.permits_cluster(context, Operation.CLUSTER_ACTION, logs_denied=False):
        permitted = authorization.permitted_topics(context, Operation.DESCRIBE, permitted)
    found = tuple(
        OffsetForLeaderTopicResult(
            topic=t.topic, partitions=tuple(_epoch_end(partitions, t.topic, p) for p in t.partitions)
        )
        for t in request.topics
        if t.topic in permitted
    )
    denied = tuple(
        OffsetForLeaderTopicResult(
            topic=t.topic,
            partitions=tuple(
                EpochEndOffset(partition=p.partition, error_code=Errors.TOPIC_AUTHORIZATION_FAILED)
                for p in t.partitions
            ),
        )
        for t in request.topics
        if t.topic not in permitted
    )
    return OffsetForLeaderEpochResponse(topics=found + denied)


def _epoch_end(partitions: Partitions, topic: str, request: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = partitions.get(topic, request.partition)
        if partition is None:
            missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(partitions.missing_error(topic, request.partition, missing))
        partition.check_leader_epoch(request.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(request.leader_epoch)
    except Refused as rejected:
        return EpochEndOffset(partition=request.partition, error_code=rejected.error)
    return EpochEndOffset(partition=request.partition, leader_epoch=epoch, end_offset=end_offset)
