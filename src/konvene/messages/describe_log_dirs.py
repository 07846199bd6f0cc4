"""DescribeLogDirs (API key 35): describes the log directories, their replicas and free space.

Errors: CLUSTER_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partitions of the topic."""


class DescribeLogDirsRequest(Struct, key=35, versions="1-5", flexible="2+"):
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, "0+", nullable="0+")
    """Topics to describe; None describes all."""


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    partition_size: int = int64("0+")
    """Size of the partition's log, in bytes."""
    offset_lag: int = int64("0+")
    """Offsets by which the replica in the directory is behind."""
    is_future_key: bool = boolean("0+")
    """True for a replica that will replace the current one after its move."""


class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition, "0+")
    """Partitions of the topic."""


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    """Error of the directory; 0 if there is none."""
    log_dir: str = string("0+")
    """Absolute path of the log directory."""
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic, "0+")
    """Topics with partitions in the directory."""
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    """Size of the file system, in bytes; -1 if unknown."""
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    """Free space of the file system, in bytes; -1 if unknown."""
    is_cordoned: bool = boolean("5+", ignorable=True)
    """True if the directory takes no new partitions."""


class DescribeLogDirsResponse(Struct, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("3+", ignorable=True)
    """Error of the whole request; 0 if there is none."""
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult, "0+")
    """Log directories."""
