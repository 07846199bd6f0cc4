"""DescribeLogDirs (API key 35): what the log directories hold and how much room they have."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class DescribeLogDirsRequest(Struct, key=35, versions="1-5", flexible="2+"):
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Struct, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult, "0+")
