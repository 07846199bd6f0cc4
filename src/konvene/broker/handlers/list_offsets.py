"""ListOffsets: look up the offset of a timestamp, or of a special timestamp such as "latest".

With isolation level READ_COMMITTED, no offset is above the last stable offset.
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
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext

FIRST_VERSION_WITH_EPOCH = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -5, -6
LOWEST_TIMESTAMP = EARLIEST_PENDING_UPLOAD
READ_COMMITTED = 1
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Request versions since which the special timestamps are supported."""


def handle(
    authorization: Authorization, partitions: Partitions, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    topics: list[ListOffsetsTopicResponse] = []
    denied: list[ListOffsetsTopicResponse] = []
    permitted = authorization.permitted_topics(context, Operation.DESCRIBE, (t.name for t in request.topics))
    counts = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    committed = request.isolation_level == READ_COMMITTED
    for t in request.topics:
        if t.name not in permitted:
            denied.append(_denied(t))
            continue
        results = []
        # A partition that is requested twice has one result.
        for p in {p.partition_index: p for p in t.partitions}.values():
            partition = partitions.get(t.name, p.partition_index)
            try:
                if counts[t.name, p.partition_index] > 1:
                    raise Refused(Errors.INVALID_REQUEST)
                if context.api_version < FIRST_VERSIONS.get(p.timestamp, 0) or p.timestamp < LOWEST_TIMESTAMP:
                    raise Refused(Errors.UNSUPPORTED_VERSION)
                if partition is None:
                    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
                    raise Refused(partitions.missing_error(t.name, p.partition_index, missing))
                partition.check_leader_epoch(p.current_leader_epoch)
                results.append(_lookup(partition, p, context.api_version, committed=committed))
            except Refused as rejected:
                results.append(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=rejected.error)
                )
        topics.append(ListOffsetsTopicResponse(name=t.name, partitions=tuple(results)))
    return ListOffsetsResponse(topics=(*topics, *denied))


def _denied(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=tuple(
            ListOffsetsPartitionResponse(
                partition_index=p.partition_index, error_code=Errors.TOPIC_AUTHORIZATION_FAILED
            )
            for p in topic.partitions
        ),
    )


def _lookup(
    partition: Partition, partition_request: ListOffsetsPartition, version: int, *, committed: bool
) -> ListOffsetsPartitionResponse:
    requested = partition_request.timestamp
    end = partition.high_watermark
    if committed:
        end = partition.log.last_stable_offset(end)
    timestamp, offset = -1, -1
    if requested == LATEST:
        offset = end
    elif requested in (EARLIEST, EARLIEST_LOCAL):
        offset = partition.start_offset
    elif requested == MAX_TIMESTAMP:
        timestamp, offset = partition.latest_timestamp() or (-1, -1)
    elif requested >= 0:
        timestamp, offset = partition.at_timestamp(requested) or (-1, -1)
    # There is no tiered storage, so LATEST_TIERED and EARLIEST_PENDING_UPLOAD have no offset.
    if timestamp != -1 and offset >= end:
        timestamp, offset = -1, -1
    return ListOffsetsPartitionResponse(
        partition_index=partition_request.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset != -1 and version >= FIRST_VERSION_WITH_EPOCH else -1,
    )
