"""Who cleans, and what a cleaning has done, in numbers and in a line of words as those of Kafka's cleaner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.log.cleaner.contract import CleanerStats

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.storage.cleaner_executor import CleanerExecutor

__all__ = ["Cleaner", "Removed", "said"]

MIB = 1 << 20


class Cleaner:
    """What Kafka calls a cleaner thread: it cleans one log at a time. Here it is a task of the loop."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stats = CleanerStats()
        """Of its last cleaning."""
        self.delay_ms = 0
        """For how long something had waited too long, when it last chose a log."""
        self.dead = False
        self.way: CleanerExecutor | None = None
        """Where its present cleaning is done."""
        self.worker: CleanerExecutor | None = None
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<cleaner {self.number}: {self.stats.end_offset} was the last end>"


class Removed:
    """What cleanings took out of the logs of a topic, since the start."""

    __slots__ = ("bytes", "cleanings", "records")

    def __init__(self) -> None:
        self.cleanings = self.bytes = self.records = 0

    def __repr__(self) -> str:
        return f"<{self.records} records, {self.bytes} bytes in {self.cleanings} cleanings>"

    def add(self, stats: CleanerStats) -> None:
        self.cleanings += 1
        self.bytes += stats.bytes_read - stats.bytes_written
        self.records += stats.messages_read - stats.messages_written


def said(begun: int, stats: CleanerStats) -> str:
    """A cleaning of what was dirty from `begun` on."""
    took_s, read, written = max(stats.elapsed_s, 0.001), stats.bytes_read, stats.bytes_written
    return (
        f"dirty from {begun}, up to {stats.end_offset}: "
        f"{read / MIB:.1f} MiB in {took_s:.1f} s ({read / MIB / took_s:.1f} MiB/s); "
        f"keys of {stats.map_bytes_read / MIB:.1f} MiB in {stats.index_s:.1f} s, "
        f"which took {100 * stats.buffer_utilization:.1f}% of their memory; "
        f"{stats.messages_written} of {stats.messages_read} records are left, "
        f"{written / MIB:.1f} MiB ({100 * (1 - written / max(read, 1)):.1f}% fewer)"
    )
