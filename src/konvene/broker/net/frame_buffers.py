"""Where the bytes of sockets go.

One small buffer serves all connections: what is read into it is taken out before anybody else reads. A
large frame is read straight into a buffer of its own, lent for as long as the frame lasts; buffers are used
again, so the memory of a busy broker is touched once and not for each batch.

Together the large frames that are not whole yet may hold `most` bytes (`queued.max.request.bytes`): beyond
that only the one that began first is read on, and the others wait for it. Bytes count when they have come,
so that a frame that is announced and never sent takes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Protocol

SHARED_BYTES = 256 * 1024

KEPT_BYTES = 16 << 20
"""So much of what was lent is kept to be lent again."""

ROUND_TO = 64 * 1024

GROW = 4
"""A buffer that is full is followed by one so many times as large."""


class Filler(Protocol):
    """Somebody whose frame is being read."""

    def pause_filling(self) -> None:
        """Read no more for now."""

    def resume_filling(self) -> None:
        """Go on reading."""


class FrameBufferPool:
    """The buffers of one broker."""

    __slots__ = ("_coming", "_free", "_held", "_kept", "_waiting", "most", "shared", "view")

    def __init__(self, most: int) -> None:
        self.most = most
        self.shared = bytearray(SHARED_BYTES)
        self.view = memoryview(self.shared)
        self._free: list[bytearray] = []
        self._kept = 0
        self._coming: dict[Filler, int] = {}
        self._held = 0
        self._waiting: dict[Filler, None] = {}

    def __repr__(self) -> str:
        return f"<intake: {len(self._coming)} large frames hold {self._held} of {self.most} bytes>"

    @property
    def held(self) -> int:
        """Bytes of large frames that are not whole yet."""
        return self._held

    def lend(self, size: int, first: int) -> bytearray:
        """A buffer of at least `first` bytes, not cleared: one of `size` bytes only if it was used before.

        A new one is memory that is touched, so it is no larger than what has come makes likely.
        """
        free = self._free  # By size, the largest last.
        if not free or len(free[-1]) < first:
            return bytearray(-(-first // ROUND_TO) * ROUND_TO)
        at = min(bisect_left(free, size, key=len), len(free) - 1)
        self._kept -= len(free[at])
        return free.pop(at)

    def give_back(self, buffer: bytearray) -> None:
        """Nobody looks into it any more. Of too many, the smallest go."""
        insort(self._free, buffer, key=len)
        self._kept += len(buffer)
        while self._kept > KEPT_BYTES:
            self._kept -= len(self._free.pop(0))

    def exchange(self, buffer: bytearray, size: int) -> bytearray:
        """A larger buffer with the same bytes at its front, in the end of `size` bytes."""
        larger = self.lend(size, min(size, GROW * len(buffer)))
        larger[: len(buffer)] = buffer
        self.give_back(buffer)
        return larger

    def came(self, filler: Filler, count: int) -> None:
        """So many more bytes of a frame have been read. May tell the filler to pause."""
        self._coming[filler] = self._coming.get(filler, 0) + count
        self._held += count
        if self._held > self.most and filler is not next(iter(self._coming)):
            self._waiting[filler] = None
            filler.pause_filling()

    def done(self, filler: Filler) -> None:
        """The frame has been dealt with, or its connection is gone."""
        self._held -= self._coming.pop(filler)
        self._waiting.pop(filler, None)
        if not self._waiting:
            return
        first = next(iter(self._coming))
        for going in list(self._waiting) if self._held <= self.most else [first]:
            if going in self._waiting:
                del self._waiting[going]
                going.resume_filling()
