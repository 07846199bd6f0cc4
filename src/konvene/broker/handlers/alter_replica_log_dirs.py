"""AlterReplicaLogDirs: accept the only log directory, which holds all replicas; reject others."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from konvene.broker.handlers.describe_log_dirs import log_dir
from konvene.errors import Errors
from konvene.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.storage.partitions import Partitions
    from konvene.log.directory import LogDirectory
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    directory: LogDirectory,
    partitions: Partitions,
    request: AlterReplicaLogDirsRequest,
    context: RequestContext,
) -> AlterReplicaLogDirsResponse:
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _denied(request)
    errors_by_topic: dict[str, dict[int, Errors]] = defaultdict(dict)
    for target in request.dirs:
        is_log_dir = Path(target.path).is_absolute() and Path(target.path) == Path(log_dir(directory))
        for topic in target.topics:
            for index in topic.partitions:
                errors_by_topic[topic.name][index] = (
                    _replica_error(partitions, topic.name, index) if is_log_dir else Errors.LOG_DIR_NOT_FOUND
                )
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index, error in errors.items()
                ),
            )
            for name, errors in errors_by_topic.items()
        )
    )


def _denied(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=Errors.CLUSTER_AUTHORIZATION_FAILED
                    )
                    for index in topic.partitions
                ),
            )
            for target in request.dirs
            for topic in target.topics
        )
    )


def _replica_error(partitions: Partitions, topic: str, index: int) -> Errors:
    if partitions.get(topic, index) is not None:
        return Errors.NONE
    return partitions.missing_error(topic, index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
