"""OffsetForLeaderEpoch (API key 23): finds the end offset of a leader epoch.

Errors: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    """Partition number."""
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    """Leader epoch that the client knows, to detect stale metadata; -1 if unknown."""
    leader_epoch: int = int32("0+")
    """Epoch whose end is wanted."""


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition, "0+")
    """Partitions of the topic."""


class OffsetForLeaderEpochRequest(Struct, key=23, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    """Id of the follower; -1 for a consumer."""
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic, "0+")
    """Topics and their results or requests."""


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    partition: int = int32("0+")
    """Partition number."""
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    """Largest epoch up to the requested one; -1 if unknown."""
    end_offset: int = int64("0+", default=-1)
    """End offset of the epoch; -1 if unknown."""


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    """Name of the topic."""
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset, "0+")
    """Partitions of the topic."""


class OffsetForLeaderEpochResponse(Struct, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult, "0+")
    """Topics and their results or requests."""
