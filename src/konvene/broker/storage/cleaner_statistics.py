"""State and statistics of the cleaners, and the log line of a finished cleaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.log.cleaner.contract import CleanerStats

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.storage.cleaner_executor import CleanerExecutor

__all__ = ["Cleaner", "RemovalTotals", "summary"]

MIB = 1 << 20


class Cleaner:
    """The state of a cleaner, which cleans one log at a time: a thread in Kafka, a task of the loop here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stats = CleanerStats()
        """Statistics of its last cleaning."""
        self.delay_ms = 0
        """By how much a log had exceeded its `max.compaction.lag.ms` when this cleaner last selected one."""
        self.dead = False
        self.executor: CleanerExecutor | None = None
        """Executor of the current cleaning."""
        self.worker: CleanerExecutor | None = None
        """Worker process of this cleaner, kept for the next cleaning."""
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<cleaner {self.number}: last cleaned up to {self.stats.end_offset}>"


class RemovalTotals:
    """Records and bytes that cleanings removed from the logs of a topic since the start."""

    __slots__ = ("bytes", "cleanings", "records")

    def __init__(self) -> None:
        self.cleanings = self.bytes = self.records = 0

    def __repr__(self) -> str:
        return f"<{self.records} records, {self.bytes} bytes in {self.cleanings} cleanings>"

    def add(self, stats: CleanerStats) -> None:
        """Add the bytes and records that a cleaning removed."""
        self.cleanings += 1
        self.bytes += stats.bytes_read - stats.bytes_written
        self.records += stats.messages_read - stats.messages_written


def summary(first_dirty_offset: int, stats: CleanerStats) -> str:
    """Return the log line of a cleaning, with the figures of Kafka's cleaner."""
    took_s, read, written = max(stats.elapsed_s, 0.001), stats.bytes_read, stats.bytes_written
    return (
        f"dirty from {first_dirty_offset}, up to {stats.end_offset}: "
        f"{read / MIB:.1f} MiB in {took_s:.1f} s ({read / MIB / took_s:.1f} MiB/s); "
        f"keys of {stats.map_bytes_read / MIB:.1f} MiB in {stats.index_s:.1f} s, "
        f"which took {100 * stats.buffer_utilization:.1f}% of their memory; "
        f"{stats.messages_written} of {stats.messages_read} records are left, "
        f"{written / MIB:.1f} MiB ({100 * (1 - written / max(read, 1)):.1f}% fewer)"
    )
