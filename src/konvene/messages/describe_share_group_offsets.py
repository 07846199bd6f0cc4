"""DescribeShareGroupOffsets (API key 90): lists share groups' start offsets and lag.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partitions of the topic."""


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )
    """Topics to describe; None describes all with state."""


class DescribeShareGroupOffsetsRequest(Struct, key=90, versions="0-1", flexible="0+"):
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )
    """Groups to describe."""


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    start_offset: int = int64("0+")
    """Start offset of the share partition; -1 if it is not initialized."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    lag: int = int64("1+", default=-1, ignorable=True)
    """Number of records that are not yet delivered completely; -1 if unknown."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )
    """Partitions of the topic."""


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    """Results, by topic."""
    error_code: int = int16("0+")
    """Error of the group; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class DescribeShareGroupOffsetsResponse(Struct, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
    """Results, by group."""
