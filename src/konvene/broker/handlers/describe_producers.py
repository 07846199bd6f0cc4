"""DescribeProducers: who has written to a partition with a producer id, and whose transaction is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.cluster.names import invalid_name_message
from konvene.errors import MESSAGES, Errors
from konvene.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext


def handle(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    request: DescribeProducersRequest,
    context: RequestContext,
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(_topic(catalogue, partitions, topic) for topic in request.topics)
    )


def _topic(catalogue: ClusterCatalogue, partitions: Partitions, asked: TopicRequest) -> TopicResponse:
    error, why = Errors.NONE, invalid_name_message(asked.name)
    if why is not None:
        error = Errors.INVALID_TOPIC_EXCEPTION
    elif asked.name not in catalogue.topics.by_name:
        error, why = Errors.UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION]
    if error is not Errors.NONE:
        failed = tuple(
            PartitionResponse(partition_index=index, error_code=error, error_message=why)
            for index in asked.partition_indexes
        )
        return TopicResponse(name=asked.name, partitions=failed)
    told = tuple(_partition(partitions, asked.name, index) for index in asked.partition_indexes)
    return TopicResponse(name=asked.name, partitions=told)


def _partition(partitions: Partitions, topic: str, index: int) -> PartitionResponse:
    partition = partitions.get(topic, index)
    if partition is None:
        error = partitions.why_not(topic, index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
        return PartitionResponse(partition_index=index, error_code=error)
    return PartitionResponse(
        partition_index=index,
        active_producers=tuple(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1
                if producer.transaction_start is None
                else producer.transaction_start,
            )
            for producer_id, producer in partition.log.producers.by_id.items()
        ),
    )
