"""AlterShareGroupOffsets (API key 91): sets a share group's start offsets.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, INVALID_GROUP_ID, UNKNOWN_TOPIC_OR_PARTITION,
FENCED_STATE_EPOCH, GROUP_MAX_SIZE_REACHED, UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    start_offset: int = int64("0+")
    """New start offset of the share partition."""


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )
    """Partitions of the topic."""


class AlterShareGroupOffsetsRequest(Struct, key=91, versions="0", flexible="0+"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = array(AlterShareGroupOffsetsRequestTopic, "0+")
    """Topics of the request, or of this part of the answer."""


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )
    """Partitions of the topic."""


class AlterShareGroupOffsetsResponse(Struct, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
    """Results, by topic or resource."""
