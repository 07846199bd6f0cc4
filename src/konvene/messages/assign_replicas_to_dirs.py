"""AssignReplicasToDirs (API key 73): which log directory holds which replica."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class DirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: tuple[TopicData, ...] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Struct, key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: tuple[DirectoryData, ...] = array(DirectoryData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")


class ResponseDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")


class AssignReplicasToDirsResponse(Struct, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: tuple[ResponseDirectoryData, ...] = array(ResponseDirectoryData, "0+")
