"""A pool of receive buffers for sockets.

All connections share one small buffer, whose content is copied out before the next read. A large frame is
read directly into a buffer of its own from a pool. Buffers are reused, so that a busy broker does not touch
new memory for each batch.

The incomplete large frames may hold `max_bytes` in total (`queued.max.request.bytes`). Above that only the
oldest frame is read further, and the others pause until it is complete. Bytes are counted when they are
received, so a client cannot reserve memory for a frame that it never sends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Protocol

SHARED_BYTES = 256 * 1024

MAX_FREE_BYTES = 16 << 20
"""Maximum size of all buffers that are kept for reuse."""

ROUND_TO = 64 * 1024

GROWTH_FACTOR = 4
"""A full buffer is replaced by one that is larger by this factor."""


class FrameReader(Protocol):
    """A connection that is reading a large frame."""

    def pause_frame(self) -> None:
        """Stop reading until `resume_frame`."""

    def resume_frame(self) -> None:
        """Continue reading."""


class FrameBufferPool:
    """The receive buffers of one broker, and the count of bytes in incomplete large frames."""

    __slots__ = (
        "_free",
        "_free_bytes",
        "_incomplete",
        "_incomplete_bytes",
        "_paused",
        "max_bytes",
        "shared",
        "view",
    )  # fmt: skip

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.shared = bytearray(SHARED_BYTES)
        self.view = memoryview(self.shared)
        self._free: list[bytearray] = []
        self._free_bytes = 0
        self._incomplete: dict[FrameReader, int] = {}
        """Received bytes of each large frame, the oldest first."""
        self._incomplete_bytes = 0
        self._paused: dict[FrameReader, None] = {}

    def __repr__(self) -> str:
        count, size = len(self._incomplete), self._incomplete_bytes
        return f"<frame buffers: {count} large frames hold {size} of {self.max_bytes} bytes>"

    @property
    def incomplete_bytes(self) -> int:
        """Return the number of bytes received of large frames that are not complete yet."""
        return self._incomplete_bytes

    def acquire(self, size: int, min_size: int) -> bytearray:
        """Return a buffer of at least `min_size` bytes, with arbitrary content.

        It is the smallest free buffer of `size` bytes or more, else the largest free one. If that is smaller
        than `min_size`, it is a new buffer of `min_size` bytes (rounded up), which uses little new memory."""
        free = self._free  # By size, the largest last.
        if not free or len(free[-1]) < min_size:
            return bytearray(-(-min_size // ROUND_TO) * ROUND_TO)
        index = min(bisect_left(free, size, key=len), len(free) - 1)
        self._free_bytes -= len(free[index])
        return free.pop(index)

    def release(self, buffer: bytearray) -> None:
        """Put a buffer back into the pool; drop the smallest buffers above `MAX_FREE_BYTES` in total."""
        insort(self._free, buffer, key=len)
        self._free_bytes += len(buffer)
        while self._free_bytes > MAX_FREE_BYTES:
            self._free_bytes -= len(self._free.pop(0))

    def grow(self, buffer: bytearray, size: int) -> bytearray:
        """Return a larger buffer with the content of `buffer`, which is full and goes back into the pool.

        `size` is the size of the whole frame; the new buffer may be smaller, and is grown again then."""
        larger = self.acquire(size, min(size, GROWTH_FACTOR * len(buffer)))
        larger[: len(buffer)] = buffer
        self.release(buffer)
        return larger

    def received(self, reader: FrameReader, count: int) -> None:
        """Count received bytes of a large frame. May pause its reader."""
        self._incomplete[reader] = self._incomplete.get(reader, 0) + count
        self._incomplete_bytes += count
        if self._incomplete_bytes > self.max_bytes and reader is not next(iter(self._incomplete)):
            self._paused[reader] = None
            reader.pause_frame()

    def finished(self, reader: FrameReader) -> None:
        """Stop counting a reader's frame, which is complete or abandoned. May resume other readers."""
        self._incomplete_bytes -= self._incomplete.pop(reader)
        self._paused.pop(reader, None)
        if not self._paused:
            return
        oldest = next(iter(self._incomplete))
        for paused in list(self._paused) if self._incomplete_bytes <= self.max_bytes else [oldest]:
            if paused in self._paused:
                del self._paused[paused]
                paused.resume_frame()
