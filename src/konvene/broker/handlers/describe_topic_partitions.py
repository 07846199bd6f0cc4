"""DescribeTopicPartitions: describe topics in the order of their names, one page of partitions at a time.

Topics need DESCRIBE. Denied ones come last, on every page; if all are requested they are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.cluster.names import invalid_name_message
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from konvene.security.resources import Operation
from konvene.security.resources import topic as topic_resource
from konvene.shard.image import Topic

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> DescribeTopicPartitionsResponse:
    broker_limit: int = settings.config["max.request.partition.size.limit"]
    remaining = max(min(request.response_partition_limit, broker_limit), 1)
    names = sorted({t.name for t in request.topics} or catalogue.topics.by_name)
    cursor_index = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        cursor_index = max(request.cursor.partition_index, 0)
    permitted = authorization.permitted_topics(context, Operation.DESCRIBE, names)
    denied = [name for name in names if request.topics and name not in permitted]
    topics: list[DescribeTopicPartitionsResponseTopic] = []

    def respond(next_cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
        operations = authorization.operations
        described = [
            t.replace(topic_authorized_operations=operations(context, topic_resource(t.name or "")))
            for t in topics
        ]
        return DescribeTopicPartitionsResponse(
            topics=(*described, *map(_denied, denied)), next_cursor=next_cursor
        )

    for name in names:
        if name not in permitted:
            continue
        start = cursor_index if request.cursor is not None and name == request.cursor.topic_name else 0
        topic = catalogue.topics.by_name.get(name)
        if topic is None:
            is_invalid = invalid_name_message(name) is not None
            error = Errors.INVALID_TOPIC_EXCEPTION if is_invalid else Errors.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(DescribeTopicPartitionsResponseTopic(error_code=error, name=name))
            continue
        if remaining == 0:
            return respond(Cursor(topic_name=name, partition_index=start))
        stop = min(start + remaining, topic.partitions)
        topics.append(_topic(catalogue, topic, range(start, stop)))
        remaining -= stop - start
        if stop < topic.partitions:
            return respond(Cursor(topic_name=name, partition_index=stop))
    return respond(None)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=Errors.TOPIC_AUTHORIZATION_FAILED, name=name)


def _topic(catalogue: ClusterCatalogue, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    node, epoch = (catalogue.node_id,), catalogue.state.leader_epoch(topic.name)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=catalogue.node_id,
                leader_epoch=epoch,
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in indexes
        ),
    )
