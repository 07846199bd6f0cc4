"""AlterReplicaLogDirs (API key 34): move replicas to other log directories."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Struct, key=34, versions="1-2", flexible="2+"):
    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(AlterReplicaLogDirPartitionResult, "0+")


class AlterReplicaLogDirsResponse(Struct, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult, "0+")
