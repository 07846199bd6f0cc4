"""AlterReplicaLogDirs (API key 34): moves replicas to other log directories.

Errors: CLUSTER_AUTHORIZATION_FAILED, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE,
INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[int, ...] = array(int32, "0+")
    """Partitions of the topic."""


class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    """Absolute path of the target log directory."""
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic, "0+")
    """Partitions to move to the directory."""


class AlterReplicaLogDirsRequest(Struct, key=34, versions="1-2", flexible="2+"):
    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir, "0+")
    """Target directories and their partitions."""


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string("0+")
    """Name of the topic."""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(AlterReplicaLogDirPartitionResult, "0+")
    """Partitions of the topic."""


class AlterReplicaLogDirsResponse(Struct, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult, "0+")
    """Results, in the order of the request."""
