"""The acquisition locks of a share partition, by when they end.

A cell knows when its lock ends; here is the order. A lock that was taken off or renewed stays in the order
until it comes to the front or there are many of its kind: so locking is cheap, and unlocking costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from konvene.delivery.runs import NO_LOCK, Cell

FEW = 64


class Locks:
    """See the top of this file."""

    __slots__ = ("_enough", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Cell]] = []
        self._number = 0
        """That of the last lock: of locks that end at the same time, the older one ends first."""
        self._enough = FEW

    def __repr__(self) -> str:
        return f"<{len(self._heap)} locks, the first until {self.first_end_ms()}>"

    def lock(self, cell: Cell, end_ms: int) -> None:
        """Lock a cell until then, in place of a lock that it has."""
        cell.lock_end_ms = end_ms
        self._number += 1
        heappush(self._heap, (end_ms, self._number, cell))
        if len(self._heap) > self._enough:
            self._sweep()

    def first_end_ms(self) -> int | None:
        """When the first lock ends."""
        heap = self._heap
        while heap:
            end_ms, _, cell = heap[0]
            if cell.lock_end_ms == end_ms:
                return end_ms
            heappop(heap)
        return None

    def ended(self, now_ms: int) -> Iterator[Cell]:
        """Take out the cells whose lock is over."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            end_ms, _, cell = heappop(heap)
            if cell.lock_end_ms == end_ms:
                cell.lock_end_ms = NO_LOCK
                yield cell

    def _sweep(self) -> None:
        """Forget those that were taken off; wait until there may be as many of them as there are locks."""
        self._heap = [entry for entry in self._heap if entry[2].lock_end_ms == entry[0]]
        heapify(self._heap)
        self._enough = FEW + 2 * len(self._heap)
