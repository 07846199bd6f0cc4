"""ListOffsets (API key 2): finds offsets by timestamp, or a partition's first or last one.

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, INVALID_REQUEST, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, LEADER_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    """Leader epoch that the client knows, to detect stale metadata; -1 if unknown."""
    timestamp: int = int64("0+")
    """Requested or found timestamp; -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local."""


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition, "0+")
    """Partitions of the topic."""


class ListOffsetsRequest(Struct, key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+")
    """Id of the follower; -1 for a consumer."""
    isolation_level: int = int8("2+")
    """0 reads uncommitted, 1 reads committed records only."""
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic, "0+")
    """Topics whose offsets are wanted."""
    timeout_ms: int = int32("10+", ignorable=True)
    """Time after which the request gives up, in milliseconds."""


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    timestamp: int = int64("1+", default=-1)
    """Requested or found timestamp; -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local."""
    offset: int = int64("1+", default=-1)
    """Offset that was found; -1 if there is none."""
    leader_epoch: int = int32("4+", default=-1)
    """Epoch of the partition's leader; -1 if it is not known."""


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse, "0+")
    """Partitions of the topic."""


class ListOffsetsResponse(Struct, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse, "0+")
    """Offsets, by topic."""
