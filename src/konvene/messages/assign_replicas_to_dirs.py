"""AssignReplicasToDirs (API key 73): reports which log directory holds which replica.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
STALE_BROKER_EPOCH, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""


class TopicData(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class DirectoryData(Struct):
    id: Uuid = uuid("0+")
    """Id of the log directory."""
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Partitions in the directory."""


class AssignReplicasToDirsRequest(Struct, key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""
    directories: tuple[DirectoryData, ...] = array(DirectoryData, "0+")
    """Log directories and their partitions."""


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")
    """Partitions of the topic."""


class ResponseDirectoryData(Struct):
    id: Uuid = uuid("0+")
    """Id of the log directory."""
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    """Partitions in the directory."""


class AssignReplicasToDirsResponse(Struct, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    directories: tuple[ResponseDirectoryData, ...] = array(ResponseDirectoryData, "0+")
    """Log directories and their partitions."""
