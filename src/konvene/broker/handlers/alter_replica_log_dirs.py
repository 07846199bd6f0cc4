"""AlterReplicaLogDirs: every replica is in the one directory already, which is the only one to name."""

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

if TYPE_CHECKING:
    from konvene.broker.storage.partitions import Partitions
    from konvene.log.directory import LogDirectory
    from konvene.runtime.coordinator import RequestContext


def handle(
    directory: LogDirectory,
    partitions: Partitions,
    request: AlterReplicaLogDirsRequest,
    context: RequestContext,
) -> AlterReplicaLogDirsResponse:
    answers: dict[str, dict[int, Errors]] = defaultdict(dict)
    for wanted in request.dirs:
        here = Path(wanted.path).is_absolute() and Path(wanted.path) == Path(log_dir(directory))
        for topic in wanted.topics:
            for index in topic.partitions:
                answers[topic.name][index] = (
                    _stay(partitions, topic.name, index) if here else Errors.LOG_DIR_NOT_FOUND
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
            for name, errors in answers.items()
        )
    )


def _stay(partitions: Partitions, topic: str, index: int) -> Errors:
    if partitions.get(topic, index) is not None:
        return Errors.NONE
    return partitions.why_not(topic, index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
