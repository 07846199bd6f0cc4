"""EndQuorumEpoch (API key 54): announces that the leader of the metadata quorum resigns.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, INCONSISTENT_CLUSTER_ID,
FENCED_LEADER_EPOCH, INVALID_REQUEST, INCONSISTENT_VOTER_SET, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    """Id of the candidate."""
    candidate_directory_id: Uuid = uuid("1+")
    """Id of the candidate's log directory."""


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    preferred_successors: tuple[int, ...] = array(int32, "0", ignorable=True)
    """Ids of the preferred successors, best first (version 0)."""
    preferred_candidates: tuple[ReplicaInfo, ...] = array(ReplicaInfo, "1+", ignorable=True)
    """Preferred successors, best first."""


class TopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class LeaderEndpoint(Struct):
    name: str = string("1+")
    """Name of the listener."""
    host: str = string("1+")
    """Host name of the endpoint."""
    port: int = uint16("1+")
    """Port of the endpoint."""


class EndQuorumEpochRequest(Struct, key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the cluster; None if it is not known."""
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Topics of the request, or of this part of the answer."""
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)
    """Endpoints of the leader."""


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")
    """Partitions of the topic."""


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    """Id of the leader."""
    host: str = string("1+")
    """Host name of the endpoint."""
    port: int = uint16("1+")
    """Port of the endpoint."""


class EndQuorumEpochResponse(Struct, key=54, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    """Topics of the request, or of this part of the answer."""
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
    """Endpoints of the leaders named in the answer."""
