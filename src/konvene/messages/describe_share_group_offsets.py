"""DescribeShareGroupOffsets (API key 90): where share groups stand in partitions."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Struct, key=90, versions="0-1", flexible="0+"):
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string("0+")
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Struct, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
