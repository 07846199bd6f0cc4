"""OffsetDelete (API key 47): delete a group's offsets of some partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Struct, key=47, versions="0"):
    group_id: str = string("0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition, "0+")


class OffsetDeleteResponse(Struct, key=47, versions="0"):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic, "0+")
