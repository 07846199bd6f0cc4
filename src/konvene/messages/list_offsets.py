"""ListOffsets (API key 2): which offset stands at a timestamp, at the start or at the end of a partition."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Struct, key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Struct, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse, "0+")
