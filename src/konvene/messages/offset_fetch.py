"""OffsetFetch (API key 9): fetches committed offsets of groups.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    """Name of the topic."""
    partition_indexes: tuple[int, ...] = array(int32, "0-7")
    """Partition numbers."""


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    partition_indexes: tuple[int, ...] = array(int32, "8+")
    """Partition numbers."""


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    """Id of the group."""
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    """Id of the fetching member; None for an administrator."""
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    """Epoch of the fetching member; -1 for an administrator."""
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")
    """Topics to fetch; None fetches all with offsets."""


class OffsetFetchRequest(Struct, key=9, versions="1-10", flexible="6+"):
    group_id: str = string("0-7")
    """Id of the group."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    """Topics to fetch; None fetches all with offsets."""
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, "8+")
    """Groups to fetch (version 8 and later), or their offsets."""
    require_stable: bool = boolean("7+")
    """If true, partitions with pending transactional commits are answered with an error."""


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    """Partition number."""
    committed_offset: int = int64("0-7")
    """Committed offset; -1 if there is none."""
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str | None = string("0-7", nullable="0-7")
    """Metadata stored with the offset; None if there is none."""
    error_code: int = int16("0-7")
    """Error of the partition; 0 if there is none."""


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    """Name of the topic."""
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(OffsetFetchResponsePartition, "0-7")
    """Partitions of the topic."""


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    """Partition number."""
    committed_offset: int = int64("8+")
    """Committed offset; -1 if there is none."""
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str | None = string("8+", nullable="8+")
    """Metadata stored with the offset; None if there is none."""
    error_code: int = int16("8+")
    """Error of the partition; 0 if there is none."""


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(OffsetFetchResponsePartitions, "8+")
    """Partitions of the topic."""


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    """Id of the group."""
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, "8+")
    """Offsets, by topic."""
    error_code: int = int16("8+")
    """Error of the group; 0 if there is none."""


class OffsetFetchResponse(Struct, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, "0-7")
    """Offsets, by topic (up to version 7)."""
    error_code: int = int16("2-7", ignorable=True)
    """Error of the whole request; 0 if there is none."""
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, "8+")
    """Groups to fetch (version 8 and later), or their offsets."""
