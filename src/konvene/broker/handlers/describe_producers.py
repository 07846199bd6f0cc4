"""DescribeProducers: list the active producers of partitions and their ongoing transactions."""

from __future__ import annotations

from collections.abc import Callable
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
from konvene.security.resources import Operation
from konvene.security.resources import topic as topic_resource

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    request: DescribeProducersRequest,
    context: RequestContext,
) -> DescribeProducersResponse:
    def is_permitted(topic: str) -> bool:
        return authorization.permits(context, Operation.READ, topic_resource(topic))

    return DescribeProducersResponse(
        topics=tuple(_topic(catalogue, partitions, topic, is_permitted) for topic in request.topics)
    )


def _topic(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    request: TopicRequest,
    is_permitted: Callable[[str], bool],
) -> TopicResponse:
    error, message = Errors.NONE, invalid_name_message(request.name)
    if message is not None:
        error = Errors.INVALID_TOPIC_EXCEPTION
    elif not is_permitted(request.name):
        error, message = Errors.TOPIC_AUTHORIZATION_FAILED, MESSAGES[Errors.TOPIC_AUTHORIZATION_FAILED]
    elif request.name not in catalogue.topics.by_name:
        error, message = Errors.UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION]
    if error is not Errors.NONE:
        errors = tuple(
            PartitionResponse(partition_index=index, error_code=error, error_message=message)
            for index in request.partition_indexes
        )
        return TopicResponse(name=request.name, partitions=errors)
    described = tuple(_partition(partitions, request.name, index) for index in request.partition_indexes)
    return TopicResponse(name=request.name, partitions=described)


def _partition(partitions: Partitions, topic: str, index: int) -> PartitionResponse:
    partition = partitions.get(topic, index)
    if partition is None:
        error = partitions.missing_error(topic, index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
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
