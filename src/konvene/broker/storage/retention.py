"""Deletes segments beyond retention, after the archive has received them.

A log determines which of its segments have expired. If its topic is archived, they are handed over first, in
a thread, because that waits for the disk; segments that the archive cannot take stay in the log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.broker.storage.archive import Archive
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.broker.storage.partitions import Partition, Partitions
    from konvene.log.segment import Segment
    from konvene.runtime.environment import Environment

__all__ = ["retain", "retain_all"]


async def retain_all(
    environment: Environment,
    disk: DiskThreads,
    partitions: Partitions,
    archive: Archive,
    *,
    cleaner_enabled: bool,
) -> None:
    """Apply retention to all logs; not to compacted ones if `cleaner_enabled`, since the cleaner does that.

    Raises `LogError`."""
    now_ms = environment.wall_clock_ms()
    for partition in list(partitions):
        if partitions.get(partition.topic, partition.index) is not partition:
            continue  # It was deleted meanwhile.
        if not (cleaner_enabled and partition.log.config.compacts):
            await retain(disk, archive, partition, now_ms)


async def retain(disk: DiskThreads, archive: Archive, partition: Partition, now_ms: int) -> None:
    """Delete the expired segments of a partition. Raises `LogError`."""
    log = partition.log
    if not archive.accepts(log):
        log.retain(now_ms)
        return
    archived: list[Segment] = []
    while expired := [segment for segment in log.expired_segments(now_ms) if segment not in archived]:
        if not await disk.run(partial(archive.hand_over, log, expired)):
            return
        archived += expired
    log.retain(now_ms)
