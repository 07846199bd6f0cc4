"""BeginQuorumEpoch (API key 53): a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string, uint16, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Struct, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
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


class BeginQuorumEpochResponse(Struct, key=53, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
