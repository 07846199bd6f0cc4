"""DescribeLogDirs: the one directory, what it holds, how much room its disk has.

A partition that is not there is left out. A directory that failed says so and nothing else.
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

if TYPE_CHECKING:
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.log.directory import LogDirectory
    from konvene.runtime.coordinator import RequestContext


def handle(
    settings: BrokerSettings,
    directory: LogDirectory,
    partitions: Partitions,
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> DescribeLogDirsResponse:
    path = log_dir(directory)
    if directory.health.failure is not None:
        failed = DescribeLogDirsResult(error_code=Errors.KAFKA_STORAGE_ERROR, log_dir=path)
        return DescribeLogDirsResponse(results=(failed,))
    asked = None
    if request.topics is not None:
        asked = {(t.topic, index) for t in request.topics for index in t.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in partitions:
        if asked is None or (partition.topic, partition.index) in asked:
            told = DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size
            )
            topics[partition.topic].append(told)
    total, usable = _room(path)
    result = DescribeLogDirsResult(
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(found)) for name, found in topics.items()
        ),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=path in (settings.config["cordoned.log.dirs"] or ()),
    )
    return DescribeLogDirsResponse(results=(result,))


def log_dir(directory: LogDirectory) -> str:
    """The directory as its absolute path."""
    return str(Path(directory.path).absolute())


def _room(path: str) -> tuple[int, int]:
    """Bytes of the whole disk and of what is free on it; -1 where there is no disk to ask."""
    try:
        disk = shutil.disk_usage(path)
    except OSError:
        return -1, -1
    return disk.total, disk.free
