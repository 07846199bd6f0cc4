"""DescribeTopicPartitions (API key 75): describes topics and partitions, page by page (KIP-966).

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST,
LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, struct, uuid
from konvene.codec.uuid import Uuid


class TopicRequest(Struct):
    name: str = string("0+")
    """Name of the topic."""


class Cursor(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partition_index: int = int32("0+")
    """Partition number."""


class DescribeTopicPartitionsRequest(Struct, key=75, versions="0", flexible="0+"):
    topics: tuple[TopicRequest, ...] = array(TopicRequest, "0+")
    """Topics to describe; empty describes all."""
    response_partition_limit: int = int32("0+", default=2000)
    """Largest number of partitions in the answer."""
    cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)
    """Partition to begin with; None begins with the first."""


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    partition_index: int = int32("0+")
    """Partition number."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    """Epoch of the partition's leader; -1 if it is not known."""
    replica_nodes: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica."""
    isr_nodes: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with an in-sync replica."""
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)
    """Ids of the replicas outside the ISR that may still be elected; None if there are none."""
    last_known_elr: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None)
    """Ids of the last known eligible leader replicas; None if there are none."""
    offline_replicas: tuple[int, ...] = array(int32, "0+", ignorable=True)
    """Ids of the brokers whose replica is offline."""


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    name: str | None = string("0+", nullable="0+")
    """Name of the topic; None if the id is unknown."""
    topic_id: Uuid = uuid("0+", ignorable=True)
    """Id of the topic."""
    is_internal: bool = boolean("0+", ignorable=True)
    """True for an internal topic."""
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    """Partitions of the topic."""
    topic_authorized_operations: int = int32("0+", default=-2147483648)
    """Bit set of the operations on the topic that the caller may perform."""


class DescribeTopicPartitionsResponse(Struct, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = array(
        DescribeTopicPartitionsResponseTopic, "0+"
    )
    """Descriptions, by topic."""
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)
    """Partition to continue with; None after the last."""
