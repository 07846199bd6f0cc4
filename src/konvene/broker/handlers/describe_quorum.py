"""DescribeQuorum: describe the quorum of the metadata log, whose only voter is this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC
from konvene.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

FIRST_VERSION_WITH_NODES = 2
METADATA_PARTITION = (
    TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),)),
)


def handle(
    authorization: Authorization,
    environment: Environment,
    catalogue: ClusterCatalogue,
    request: DescribeQuorumRequest,
    context: RequestContext,
) -> DescribeQuorumResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        denied = Errors.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=MESSAGES[denied])
    if request.topics != METADATA_PARTITION:
        return DescribeQuorumResponse(topics=tuple(_unknown_topic(topic) for topic in request.topics))
    now_ms = environment.wall_clock_ms()
    end = catalogue.end_offset
    voter = ReplicaState(
        replica_id=catalogue.node_id,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    quorum = ResponsePartitionData(
        leader_id=catalogue.node_id, leader_epoch=0, high_watermark=end, current_voters=(voter,)
    )
    return DescribeQuorumResponse(
        topics=(ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(quorum,)),),
        nodes=(_node(catalogue),) if context.api_version >= FIRST_VERSION_WITH_NODES else (),
    )


def _node(catalogue: ClusterCatalogue) -> Node:
    return Node(
        node_id=catalogue.node_id,
        listeners=tuple(
            Listener(name=name, host=host, port=port)
            for name, (host, port) in catalogue.advertised_by_listener.items()
        ),
    )


def _unknown_topic(topic: TopicData) -> ResponseTopicData:
    return ResponseTopicData(
        topic_name=topic.topic_name,
        partitions=tuple(
            ResponsePartitionData(
                partition_index=p.partition_index,
                error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION],
            )
            for p in topic.partitions
        ),
    )
