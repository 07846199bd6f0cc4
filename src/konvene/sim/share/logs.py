"""The partitions that share groups read, in virtual time: batches of real bytes in a list.

They grow where the world says that records came, and lose their beginning where it says so. Whoever waits
for a partition to grow is woken.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from konvene.codec.batches import Record, build
from konvene.log.errors import OffsetOutOfRange

MOST_IN_A_BATCH = 8


class ReadLog:
    """The log of a partition, as far as a share partition looks at it. No transactions."""

    aborted: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.start_offset = self.end_offset = 0
        self._bases: list[int] = []
        self._batches: list[bytes] = []

    def __repr__(self) -> str:
        return f"<log {self.start_offset}-{self.end_offset}>"

    def grow(self, end: int, size: int = MOST_IN_A_BATCH) -> bool:
        """Records up to there, in batches of that size. Whether any came."""
        came = end > self.end_offset
        while self.end_offset < end:
            base, upto = self.end_offset, min(end, self.end_offset + size)
            entries = [Record(offset, 0, None, b"%d" % offset, ()) for offset in range(base, upto)]
            self._bases.append(base)
            self._batches.append(build(entries))
            self.end_offset = upto
        return came

    def lose_beginning(self, offset: int) -> None:
        """As retention, or DeleteRecords."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def read(self, offset: int, max_bytes: int, *, upto: int, min_one: bool = True) -> bytes:
        """Whole batches from the one with this offset. Raises `OffsetOutOfRange`."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not in {self!r}")
        at = bisect_right(self._bases, offset) - 1
        found: list[bytes] = []
        size = 0
        while 0 <= at < len(self._bases) and offset < self.end_offset and self._bases[at] < upto:
            batch = self._batches[at]
            if size + len(batch) > max_bytes and (found or not min_one):
                break
            found.append(batch)
            size += len(batch)
            at += 1
        return b"".join(found)

    def last_stable_offset(self, end: int) -> int:
        return end


class ReadPartition:
    """A partition of a topic, which this node leads."""

    leader_epoch = 0

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.log = ReadLog()
        self.waiting: dict[Any, None] = {}

    def __repr__(self) -> str:
        return f"<{self.topic}: {self.log!r}>"

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    def at_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """All records are of the beginning of time."""
        return None

    def grow(self, end: int) -> None:
        """Records came up to there."""
        if self.log.grow(end):
            for waiting in list(self.waiting):
                waiting.look()
