"""What a cleaning has done, in numbers and in a line of words: what Kafka's cleaner says of one."""

from __future__ import annotations

from konvene.log.cleaner.contract import Stats

__all__ = ["Removed", "said"]

MIB = 1 << 20


class Removed:
    """What cleanings took out of the logs of a topic, since the start."""

    __slots__ = ("bytes", "cleanings", "records")

    def __init__(self) -> None:
        self.cleanings = self.bytes = self.records = 0

    def __repr__(self) -> str:
        return f"<{self.records} records, {self.bytes} bytes in {self.cleanings} cleanings>"

    def add(self, stats: Stats) -> None:
        self.cleanings += 1
        self.bytes += stats.bytes_read - stats.bytes_written
        self.records += stats.messages_read - stats.messages_written


def said(begun: int, stats: Stats) -> str:
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
