"""DescribeQuorum (API key 55): describes the metadata quorum.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uint16, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""


class TopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class DescribeQuorumRequest(Struct, key=55, versions="0-2", flexible="0+"):
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Topics of the request, or of this part of the answer."""


class ReplicaState(Struct):
    replica_id: int = int32("0+")
    """Id of the replica."""
    replica_directory_id: Uuid = uuid("2+")
    """Id of the replica's log directory."""
    log_end_offset: int = int64("0+")
    """End offset of the replica's log; -1 if unknown."""
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    """Time of the replica's last fetch, in milliseconds; -1 if unknown."""
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)
    """Time when the replica was last caught up, in milliseconds; -1 if unknown."""


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    """Explanation of the error; None if there is none."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    high_watermark: int = int64("0+")
    """Offset below which records are fully replicated."""
    current_voters: tuple[ReplicaState, ...] = array(ReplicaState, "0+")
    """Voters of the quorum."""
    observers: tuple[ReplicaState, ...] = array(ReplicaState, "0+")
    """Observers of the quorum."""


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")
    """Partitions of the topic."""


class Listener(Struct):
    name: str = string("2+")
    """Name of the listener."""
    host: str = string("2+")
    """Host name of the endpoint."""
    port: int = uint16("2+")
    """Port of the endpoint."""


class Node(Struct):
    node_id: int = int32("2+")
    """Id of the node."""
    listeners: tuple[Listener, ...] = array(Listener, "2+")
    """Endpoints of the node, by listener."""


class DescribeQuorumResponse(Struct, key=55, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    """Explanation of the error; None if there is none."""
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    """Topics of the request, or of this part of the answer."""
    nodes: tuple[Node, ...] = array(Node, "2+")
    """Endpoints of the quorum's nodes."""
