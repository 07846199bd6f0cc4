"""What retention no longer keeps goes, once whoever wants it has it.

A log says itself which of its segments may go. Where the archive wants them, they are handed over first, in a
thread, for that waits for the disk; as long as they cannot be, they stay.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.storage.partitions import Partition
    from konvene.log.segment import Segment

__all__ = ["retain", "retain_all"]


async def retain_all(broker: Broker) -> None:
    """All logs but those whose cleaner does it. Raises `LogError`."""
    now_ms = broker.wall_clock_ms()
    for partition in list(broker.partitions):
        if broker.partitions.get(partition.topic, partition.index) is not partition:
            continue  # It was deleted meanwhile.
        if not (broker.cleaning.is_enabled and partition.log.config.compacts):
            await retain(broker, partition, now_ms)


async def retain(broker: Broker, partition: Partition, now_ms: int) -> None:
    """Let go of what retention no longer keeps of a partition. Raises `LogError`."""
    of, archive = partition.log, broker.archive
    if not archive.wants(of):
        of.retain(now_ms)
        return
    handed: list[Segment] = []
    while doomed := [segment for segment in of.expired_segments(now_ms) if segment not in handed]:
        if not await broker.disk.run(partial(archive.hand_over, of, doomed)):
            return
        handed += doomed
    of.retain(now_ms)
