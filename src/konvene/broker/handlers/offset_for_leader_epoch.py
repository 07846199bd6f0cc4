"""OffsetForLeaderEpoch: where the log of a leader's epoch ends, for clients that check where they stand."""

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

if TYPE_CHECKING:
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext


def handle(
    partitions: Partitions, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=t.topic, partitions=tuple(_end(partitions, t.topic, p) for p in t.partitions)
            )
            for t in request.topics
        )
    )


def _end(partitions: Partitions, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = partitions.get(topic, wanted.partition)
        if partition is None:
            missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(partitions.why_not(topic, wanted.partition, missing))
        partition.check_leader_epoch(wanted.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    except Refused as refused:
        return EpochEndOffset(partition=wanted.partition, error_code=refused.error)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
