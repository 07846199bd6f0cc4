"""DeleteRecords (API key 21): raises the log start offset of partitions.

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
POLICY_VIOLATION, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    offset: int = int64("0+")
    """Records below this offset are deleted; -1 stands for the high watermark."""


class DeleteRecordsTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[DeleteRecordsPartition, ...] = array(DeleteRecordsPartition, "0+")
    """Partitions of the topic."""


class DeleteRecordsRequest(Struct, key=21, versions="0-2", flexible="2+"):
    topics: tuple[DeleteRecordsTopic, ...] = array(DeleteRecordsTopic, "0+")
    """Topics whose records are deleted."""
    timeout_ms: int = int32("0+")
    """Time after which the request gives up, in milliseconds."""


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    low_watermark: int = int64("0+")
    """New log start offset of the partition."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class DeleteRecordsTopicResult(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = array(DeleteRecordsPartitionResult, "0+")
    """Partitions of the topic."""


class DeleteRecordsResponse(Struct, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[DeleteRecordsTopicResult, ...] = array(DeleteRecordsTopicResult, "0+")
    """Topics whose records are deleted."""
