"""What retention no longer keeps goes, once whoever wants it has it.

A log says itself which of its segments may go. Where the archive wants them, they are handed over first, in a
thread, for that waits for the disk; as long as they cannot be, they stay.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.broker.storage.archive import Archive
    from konvene.broker.storage.cleaner import LogCleaner
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.broker.storage.partitions import Partition, Partitions
    from konvene.log.segment import Segment
    from konvene.runtime.environment import Environment

__all__ = ["retain", "retain_all"]


async def retain_all(
    environment: Environment, disk: DiskThreads, partitions: Partitions, archive: Archive, cleaner: LogCleaner
) -> None:
    """All logs but those whose cleaner does it. Raises `LogError`."""
    now_ms = environment.wall_clock_ms()
    for partition in list(partitions):
        if partitions.get(partition.topic, partition.index) is not partition:
            continue  # It was deleted meanwhile.
        if not (cleaner.is_enabled and partition.log.config.compacts):
            await retain(disk, archive, partition, now_ms)


async def retain(disk: DiskThreads, archive: Archive, partition: Partition, now_ms: int) -> None:
    """Let go of what retention no longer keeps of a partition. Raises `LogError`."""
    of = partition.log
    if not archive.wants(of):
        of.retain(now_ms)
        return
    handed: list[Segment] = []
    while doomed := [segment for segment in of.expired_segments(now_ms) if segment not in handed]:
        if not await disk.run(partial(archive.hand_over, of, doomed)):
            return
        handed += doomed
    of.retain(now_ms)
