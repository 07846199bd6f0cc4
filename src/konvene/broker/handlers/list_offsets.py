"""ListOffsets: the offset at a timestamp, or at one of the places that have a negative number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.partitions import Partition, Refused
from konvene.errors import Errors
from konvene.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

FIRST_VERSION_WITH_EPOCH = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -5, -6
_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(broker: Broker, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    topics = []
    for t in request.topics:
        answers = []
        for p in t.partitions:
            partition = broker.partitions.get(t.name, p.partition_index)
            try:
                if partition is None:
                    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
                    raise Refused(broker.partitions.why_not(t.name, p.partition_index, missing))
                partition.check_leader_epoch(p.current_leader_epoch)
                answers.append(_find(partition, p, call.api_version))
            except Refused as refused:
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=refused.error)
                )
        topics.append(ListOffsetsTopicResponse(name=t.name, partitions=tuple(answers)))
    return ListOffsetsResponse(topics=tuple(topics))


def _find(partition: Partition, wanted: ListOffsetsPartition, version: int) -> ListOffsetsPartitionResponse:
    asked = wanted.timestamp
    if version < _FIRST_VERSIONS.get(asked, 0) or asked < EARLIEST_PENDING_UPLOAD:
        raise Refused(Errors.UNSUPPORTED_VERSION)
    timestamp, offset = -1, -1
    if asked == LATEST:
        offset = partition.end_offset
    elif asked in (EARLIEST, EARLIEST_LOCAL):
        offset = partition.start_offset
    elif asked == MAX_TIMESTAMP:
        timestamp, offset = partition.latest_timestamp() or (-1, -1)
    elif asked >= 0:
        timestamp, offset = partition.at_timestamp(asked) or (-1, -1)
    # Nothing is tiered here, so the two places that speak of tiers are nowhere.
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset != -1 and version >= FIRST_VERSION_WITH_EPOCH else -1,
    )
