"""Vote (API key 52): a candidate of the metadata quorum asks for a vote."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, uint16, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class VoteRequest(Struct, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[TopicData, ...] = array(TopicData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class ResponseTopicData(Struct):
    topic_name: str = string("0+")
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Struct, key=52, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
