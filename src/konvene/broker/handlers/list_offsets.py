"""ListOffsets: the offset at a timestamp, or at one of the places that have a negative number.

A reader of committed data is told of nothing behind the last stable offset.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Partition, Refused
from konvene.errors import Errors
from konvene.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_EPOCH = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -5, -6
LAST_PLACE = EARLIEST_PENDING_UPLOAD
READ_COMMITTED = 1
_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(
    partitions: Partitions, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    topics = []
    named = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    committed = request.isolation_level == READ_COMMITTED
    for t in request.topics:
        answers = []
        # A partition that is named twice is answered once.
        for p in {p.partition_index: p for p in t.partitions}.values():
            partition = partitions.get(t.name, p.partition_index)
            try:
                if named[t.name, p.partition_index] > 1:
                    raise Refused(Errors.INVALID_REQUEST)
                if context.api_version < _FIRST_VERSIONS.get(p.timestamp, 0) or p.timestamp < LAST_PLACE:
                    raise Refused(Errors.UNSUPPORTED_VERSION)
                if partition is None:
                    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
                    raise Refused(partitions.why_not(t.name, p.partition_index, missing))
                partition.check_leader_epoch(p.current_leader_epoch)
                answers.append(_find(partition, p, context.api_version, committed=committed))
            except Refused as refused:
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=refused.error)
                )
        topics.append(ListOffsetsTopicResponse(name=t.name, partitions=tuple(answers)))
    return ListOffsetsResponse(topics=tuple(topics))


def _find(
    partition: Partition, wanted: ListOffsetsPartition, version: int, *, committed: bool
) -> ListOffsetsPartitionResponse:
    asked = wanted.timestamp
    end = partition.high_watermark
    if committed:
        end = partition.log.last_stable_offset(end)
    timestamp, offset = -1, -1
    if asked == LATEST:
        offset = end
    elif asked in (EARLIEST, EARLIEST_LOCAL):
        offset = partition.start_offset
    elif asked == MAX_TIMESTAMP:
        timestamp, offset = partition.latest_timestamp() or (-1, -1)
    elif asked >= 0:
        timestamp, offset = partition.at_timestamp(asked) or (-1, -1)
    # Nothing is tiered here, so the two places that speak of tiers are nowhere.
    if timestamp != -1 and offset >= end:
        timestamp, offset = -1, -1
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset != -1 and version >= FIRST_VERSION_WITH_EPOCH else -1,
    )
