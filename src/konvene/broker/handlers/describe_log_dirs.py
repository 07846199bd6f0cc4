"""DescribeLogDirs: describe the only log directory: the size of its partitions, and the space of its disk.

Partitions that do not exist are left out. If the directory has failed, the response has its error only.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.log.directory import LogDirectory
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    directory: LogDirectory,
    partitions: Partitions,
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> DescribeLogDirsResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    path = log_dir(directory)
    if directory.health.failure is not None:
        failed = DescribeLogDirsResult(error_code=Errors.KAFKA_STORAGE_ERROR, log_dir=path)
        return DescribeLogDirsResponse(results=(failed,))
    requested = None
    if request.topics is not None:
        requested = {(t.topic, index) for t in request.topics for index in t.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in partitions:
        if requested is None or (partition.topic, partition.index) in requested:
            topics[partition.topic].append(
                DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size)
            )
    total, usable = _disk_space(path)
    result = DescribeLogDirsResult(
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(described)) for name, described in topics.items()
        ),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=path in (settings.config["cordoned.log.dirs"] or ()),
    )
    return DescribeLogDirsResponse(results=(result,))


def log_dir(directory: LogDirectory) -> str:
    """Return the absolute path of the log directory."""
    return str(Path(directory.path).absolute())


def _disk_space(path: str) -> tuple[int, int]:
    """Return the total and free bytes of the disk; -1 if they cannot be determined."""
    try:
        disk = shutil.disk_usage(path)
    except OSError:
        return -1, -1
    return disk.total, disk.free
