"""DeleteRecords: advance the log start offset of partitions, deleting the records below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Refused
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext

HIGH_WATERMARK = -1


def handle(
    authorization: Authorization,
    partitions: Partitions,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> DeleteRecordsResponse:
    names = {t.name for t in request.topics}
    denied = names - authorization.permitted_topics(context, Operation.DELETE, names)
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=t.name,
                partitions=tuple(
                    _error(p, Errors.TOPIC_AUTHORIZATION_FAILED)
                    if t.name in denied
                    else _delete(partitions, t.name, p)
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )


def _delete(
    partitions: Partitions, topic: str, request: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = request.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise Refused(Errors.INVALID_TOPIC_EXCEPTION)
        partition = partitions.get(topic, index)
        if partition is None:
            missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(partitions.missing_error(topic, index, missing))
        offset = partition.high_watermark if request.offset == HIGH_WATERMARK else request.offset
        start = partition.delete_before(offset)
    except Refused as rejected:
        return _error(request, rejected.error)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)


def _error(request: DeleteRecordsPartition, error: Errors) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=request.partition_index, low_watermark=-1, error_code=error
    )
