"""OffsetDelete (API key 47): deletes a group's committed offsets.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, NON_EMPTY_GROUP,
UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""


class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition, "0+")
    """Partitions of the topic."""


class OffsetDeleteRequest(Struct, key=47, versions="0"):
    group_id: str = string("0+")
    """Id of the group."""
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic, "0+")
    """Topics whose offsets are deleted."""


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition, "0+")
    """Partitions of the topic."""


class OffsetDeleteResponse(Struct, key=47, versions="0"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    throttle_time_ms: int = int32("0+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic, "0+")
    """Results, by topic."""
