"""OffsetCommit (API key 8): commits offsets of a group.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED,
TOPIC_AUTHORIZATION_FAILED, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, OFFSET_METADATA_TOO_LARGE,
INVALID_COMMIT_OFFSET_SIZE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    committed_offset: int = int64("0+")
    """Offset to commit."""
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    """Leader epoch of the last consumed record; -1 if it is not known."""
    committed_metadata: str | None = string("0+", nullable="0+")
    """Metadata that the client stores with the offset."""


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition, "0+")
    """Partitions of the topic."""


class OffsetCommitRequest(Struct, key=8, versions="2-10", flexible="8+"):
    group_id: str = string("0+")
    """Id of the group."""
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    """Generation of a classic member, or epoch of a member of the newer protocols."""
    member_id: str = string("1+", ignorable=True)
    """Id of the member."""
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    """Time to keep the offsets, in milliseconds; -1 for the broker's default (up to version 4)."""
    topics: tuple[OffsetCommitRequestTopic, ...] = array(OffsetCommitRequestTopic, "0+")
    """Topics whose offsets are committed."""


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    """Name of the topic."""
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(OffsetCommitResponsePartition, "0+")
    """Partitions of the topic."""


class OffsetCommitResponse(Struct, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic, "0+")
    """Results, by topic."""
