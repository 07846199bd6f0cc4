"""The acquisition locks of a share partition, ordered by the time when they end.

A cell stores the end of its lock; the heap stores the order. An entry whose lock was removed or renewed stays
in the heap until it reaches the front, or a sweep removes it: so locking is cheap and unlocking is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from konvene.delivery.runs import NO_LOCK, Cell

MIN_SWEEP_SIZE = 64


class Locks:
    """A priority queue of locked cells, by the time when their lock ends: the earliest first."""

    __slots__ = ("_heap", "_number", "_sweep_size")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Cell]] = []
        self._number = 0
        """Serial number of the last lock: of locks that end at the same time, the older one comes first."""
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
        """Return the time when the first lock ends, None without locks."""
        heap = self._heap
        while heap:
            end_ms, _, cell = heap[0]
            if cell.lock_end_ms == end_ms:
                return end_ms
            heappop(heap)
        return None

    def ended(self, now_ms: int) -> Iterator[Cell]:
        """Remove the locks that have ended at `now_ms` and yield their cells."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            end_ms, _, cell = heappop(heap)
            if cell.lock_end_ms == end_ms:
                cell.lock_end_ms = NO_LOCK
                yield cell

    def _sweep(self) -> None:
        """Drop the entries of removed or renewed locks; the next sweep follows when the heap has doubled."""
        self._heap = [entry for entry in self._heap if entry[2].lock_end_ms == entry[0]]
        heapify(self._heap)
        self._sweep_size = MIN_SWEEP_SIZE + 2 * len(self._heap)
