"""EndQuorumEpoch (API key 54): a leader of the metadata quorum steps down."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: Uuid = uuid("1+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: tuple[int, ...] = array(int32, "0", ignorable=True)
    preferred_candidates: tuple[ReplicaInfo, ...] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Struct, key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(Struct, key=54, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
