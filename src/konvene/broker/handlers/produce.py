"""Produce: each partition's batch is checked, given its offsets and appended; each is answered by itself.

With acks=0 nothing is answered, and an error can only be told by closing the connection, as by Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.later import HANG_UP
from konvene.broker.partitions import Partition, Refused
from konvene.cluster.names import INTERNAL_TOPICS
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.log.errors import LogError
from konvene.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

NO_ACKS, ALL_ACKS = 0, -1
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ZSTD = 7

Unsynced = tuple[Partition, str, Uuid]
"""A partition that was written to, and by which name and id it was asked for."""

INTERNAL_CLIENT_ID = "__admin_client"
"""The client id with which Kafka's tools may write to internal topics."""


def handle(broker: Broker, request: ProduceRequest, call: Call) -> Any:
    unsynced: list[Unsynced] = []
    if request.acks not in (NO_ACKS, 1, ALL_ACKS):
        responses = _everything(request, Errors.INVALID_REQUIRED_ACKS)
    elif request.transactional_id is not None:
        responses = _everything(request, Errors.COORDINATOR_NOT_AVAILABLE)
    else:
        responses = tuple(_topic(broker, t, call, unsynced) for t in request.topic_data)
    if request.acks == NO_ACKS:
        failed = any(p.error_code for t in responses for p in t.partition_responses)
        return HANG_UP if failed else None
    response = ProduceResponse(responses=responses)
    if request.acks == ALL_ACKS and unsynced:
        return _when_durable(response, unsynced)
    return response


async def _when_durable(response: ProduceResponse, unsynced: list[Unsynced]) -> ProduceResponse:
    """`konvene.log.fsync.topics`: an acknowledged record is on the disk, or it is said that it is not."""
    failed: dict[tuple[str, Uuid, int], LogError] = {}
    for partition, name, topic_id in unsynced:
        try:
            await partition.sync()
        except LogError as error:
            failed[name, topic_id, partition.index] = error
    if not failed:
        return response
    return ProduceResponse(responses=tuple(_as_synced(topic, failed) for topic in response.responses))


def _as_synced(
    topic: TopicProduceResponse, failed: dict[tuple[str, Uuid, int], LogError]
) -> TopicProduceResponse:
    answers = []
    for told in topic.partition_responses:
        error = failed.get((topic.name, topic.topic_id, told.index))
        answers.append(told if error is None else _refused(told.index, Errors(error.code), str(error)))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(answers))


def _topic(
    broker: Broker, data: TopicProduceData, call: Call, unsynced: list[Unsynced]
) -> TopicProduceResponse:
    name, missing = data.name, Errors.UNKNOWN_TOPIC_OR_PARTITION
    if call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = broker.topics.by_id.get(data.topic_id)
        name, missing = (topic.name if topic else ""), Errors.UNKNOWN_TOPIC_ID
        if topic is not None:
            missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    answers = []
    for wanted in data.partition_data:
        partition = broker.partitions.get(name, wanted.index)
        if partition is None:
            answers.append(_failed(wanted, broker.partitions.why_not(name, wanted.index, missing)))
        elif name in INTERNAL_TOPICS and call.client_id != INTERNAL_CLIENT_ID:
            answers.append(_failed(wanted, Errors.INVALID_TOPIC_EXCEPTION))
        else:
            answers.append(_append(partition, wanted, call))
            if partition.syncs and answers[-1].error_code == Errors.NONE:
                unsynced.append((partition, data.name, data.topic_id))
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(answers))


def _append(partition: Partition, data: PartitionProduceData, call: Call) -> PartitionProduceResponse:
    try:
        done = partition.produce(data.records or b"", zstd=call.api_version >= FIRST_VERSION_WITH_ZSTD)
    except Refused as refused:
        return _failed(data, refused.error, refused.message)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=done.base_offset,
        log_append_time_ms=done.log_append_time_ms,
        log_start_offset=partition.start_offset,
    )


def _failed(
    data: PartitionProduceData, error: Errors, message: str | None = None
) -> PartitionProduceResponse:
    return _refused(data.index, error, message)


def _refused(index: int, error: Errors, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def _everything(request: ProduceRequest, error: Errors) -> tuple[TopicProduceResponse, ...]:
    return tuple(
        TopicProduceResponse(
            name=t.name,
            topic_id=t.topic_id,
            partition_responses=tuple(_failed(p, error) for p in t.partition_data),
        )
        for t in request.topic_data
    )
