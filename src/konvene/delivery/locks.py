"""The acquisition locks of a share partition, ordered by their end.

A cell has the end of its lock; this heap has the order. Entries of removed or renewed locks stay in the heap
until they reach its front or are too many: so locking is cheap, and unlocking costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from konvene.delivery.runs import NO_LOCK, Cell

MIN_SWEEP_SIZE = 64


class Locks:
    """A heap of acquisition locks."""

    __slots__ = ("_heap", "_number", "_sweep_size")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Cell]] = []
        self._number = 0
        """Number of the last lock: of locks with the same end, the older one comes first."""
        self._sweep_size = MIN_SWEEP_SIZE

    def __repr__(self) -> str:
        return f"<{len(self._heap)} locks, the first until {self.first_end_ms()}>"

    def lock(self, cell: Cell, end_ms: int) -> None:
        """Lock a cell until `end_ms`, replacing any lock that it has."""
        cell.lock_end_ms = end_ms
        self._number += 1
        heappush(self._heap, (end_ms, self._number, cell))
        if len(self._heap) > self._sweep_size:
            self._sweep()

    def first_end_ms(self) -> int | None:
        """Return when the first lock ends, None if there is none."""
        heap = self._heap
        while heap:
            end_ms, _, cell = heap[0]
            if cell.lock_end_ms == end_ms:
                return end_ms
            heappop(heap)
        return None

    def ended(self, now_ms: int) -> Iterator[Cell]:
        """Remove and yield the cells whose lock has ended."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            end_ms, _, cell = heappop(heap)
            if cell.lock_end_ms == end_ms:
                cell.lock_end_ms = NO_LOCK
                yield cell

    def _sweep(self) -> None:
        """Drop outdated entries; the next sweep is due when they may be as many as the locks."""
        self._heap = [entry for entry in self._heap if entry[2].lock_end_ms == entry[0]]
        heapify(self._heap)
        self._sweep_size = MIN_SWEEP_SIZE + 2 * len(self._heap)
