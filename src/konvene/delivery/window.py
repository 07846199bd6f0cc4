"""The window of a share partition: the offsets from the first that is not final to the last that was read.

It reaches from `start_offset`, before which all records are final (acknowledged or archived), to
`end_offset`, behind which nothing was read. In between are cells in the order of offsets. Offsets without a
cell do not exist in the log, except for gaps: offsets that a former leader delivered without writing their
state. Gaps are read again.

Every change of a cell's state goes through `move`, which updates the counters of the window; so nothing is
ever recounted. An empty window has its end at its start, which then is the next offset to read, as in Kafka.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from konvene.delivery.contract import RecordState
from konvene.delivery.locks import Locks
from konvene.delivery.runs import NO_LOCK, NO_MEMBER, Batch, Cell, PendingChange

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED

Gap = tuple[int, int]


class Window:
    """The sorted cells and gaps of a share partition, with counters of their records by state."""

    __slots__ = (
        "_firsts", "_free_from", "cells", "complete", "end_offset", "free", "gaps", "held", "locks",
        "start_offset",
    )  # fmt: skip

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = self.end_offset = start_offset
        self.cells: list[Cell] = []
        self._firsts: list[int] = []
        self.gaps: list[Gap] = []
        self.locks = Locks()
        self.free = 0
        """Number of available records."""
        self._free_from = start_offset
        """An offset before which no record is available; the search for available records begins here."""
        self.complete = 0
        """Number of acknowledged and archived records, including those with a pending write."""
        self.held: dict[str, int] = {}
        """Number of acquired records by member."""

    def __repr__(self) -> str:
        return f"<{self.start_offset}-{self.end_offset}: {self.cells}{self.gaps or ''}>"

    # --- queries ---

    @property
    def in_flight(self) -> int:
        """Number of offsets from the start to the end of the window, as Kafka counts them."""
        return self.end_offset - self.start_offset + 1 if self.cells else 0

    @property
    def frontier(self) -> int:
        """The first offset that was never read."""
        return self.end_offset + 1 if self.cells else self.end_offset

    def next_fetch_offset(self) -> int:
        """Return the first offset that is available or in a gap, or the frontier if there is none."""
        offset = self.gaps[0][0] if self.gaps else self.frontier
        if self.free:
            cells = self.cells
            at = max(bisect_right(self._firsts, self._free_from) - 1, 0)
            while cells[at].state is not AVAILABLE or cells[at].change is not None:
                at += 1
            self._free_from = cells[at].first
            offset = min(offset, self._free_from)
        return offset

    def find(self, offset: int) -> int:
        """Return the index of the cell that contains `offset`, or of the first cell behind it."""
        at = bisect_right(self._firsts, offset) - 1
        return at if at >= 0 and self.cells[at].last >= offset else at + 1

    def floor(self, offset: int) -> int:
        """Return the index of the last cell that begins at or before this offset; -1 if there is none."""
        return bisect_right(self._firsts, offset) - 1

    def between(self, first: int, last: int) -> Iterator[Cell]:
        """Yield the cells that overlap `first` to `last`; they may be cut during the iteration."""
        at = self.find(first)
        while at < len(self.cells) and self.cells[at].first <= last:
            cell = self.cells[at]
            yield cell
            at = bisect_right(self._firsts, cell.last, at)

    # --- changes ---

    def move(
        self, cell: Cell, state: RecordState, member_id: str = NO_MEMBER, change: PendingChange | None = None
    ) -> None:
        """Change a cell's state, owner and pending change, and update the counters."""
        self._count(cell, -1)
        cell.state = state
        cell.member_id = member_id
        cell.change = change
        self._count(cell, 1)

    def _count(self, cell: Cell, sign: int) -> None:
        state = cell.state
        records = (cell.last - cell.first + 1) * sign
        if state is ACQUIRED:
            held = self.held.get(cell.member_id, 0) + records
            if held:
                self.held[cell.member_id] = held
            else:
                del self.held[cell.member_id]
        elif state is ACKNOWLEDGED or state is ARCHIVED:
            self.complete += records
        elif state is AVAILABLE and cell.change is None:
            self.free += records
            if cell.first < self._free_from:
                self._free_from = cell.first

    def add(self, cell: Cell) -> None:
        """Insert a cell, close the gaps that it covers, and extend the window to include it."""
        first = cell.first
        if not self.cells or first > self.end_offset:
            at = len(self.cells)
            self.cells.append(cell)
            self._firsts.append(first)
            self.end_offset = cell.last
        else:
            at = bisect_left(self._firsts, first)
            self.cells.insert(at, cell)
            self._firsts.insert(at, first)
        if at == 0 and not (self.gaps and self.gaps[0][0] < first):
            self.start_offset = first
        if self.gaps:
            self.close_gaps(first, cell.last)
        self._count(cell, 1)

    def cut(self, cell: Cell, offset: int) -> Cell:
        """Split a cell so that `offset` begins a new one, which is returned."""
        if cell.batch is None:
            cell.batch = Batch(cell.first, cell.last)
        rest = Cell(offset, cell.last, cell.state, cell.count, cell.member_id, cell.batch, cell.acquired_ms)
        cell.last = offset - 1
        at = bisect_left(self._firsts, offset)
        self.cells.insert(at, rest)
        self._firsts.insert(at, offset)
        rest.change = cell.change
        if cell.change is not None:
            cell.change.cells.append(rest)
        if cell.lock_end_ms >= 0:
            self.locks.lock(rest, cell.lock_end_ms)
        else:
            rest.lock_end_ms = cell.lock_end_ms
        return rest

    def cut_out(self, cell: Cell, first: int, last: int) -> Cell:
        """Split a cell, and return the cell of its offsets from `first` to `last`."""
        if first > cell.first:
            cell = self.cut(cell, first)
        if last < cell.last:
            self.cut(cell, last + 1)
        return cell

    def join(self, cell: Cell, right: Cell) -> None:
        """Merge `right`, the next cell, which has the same state, into `cell`."""
        at = bisect_left(self._firsts, right.first)
        del self.cells[at], self._firsts[at]
        cell.last = right.last
        right.lock_end_ms = NO_LOCK

    def close_gaps(self, first: int, last: int) -> bool:
        """Remove the offsets from `first` to `last` from the gaps; return whether any were in a gap."""
        remaining: list[Gap] = []
        for begin, end in self.gaps:
            if begin < first:
                remaining.append((begin, min(end, first - 1)))
            if end > last:
                remaining.append((max(begin, last + 1), end))
        closed = remaining != self.gaps
        self.gaps = remaining
        return closed

    # --- advancing the start ---

    def settle(self) -> bool:
        """Advance the start offset over final and missing offsets; return True if it moved."""
        cells, count = self.cells, 0
        stop = self.gaps[0][0] if self.gaps else self.end_offset + 1
        for cell in cells:
            state = cell.state
            if (state is not ACKNOWLEDGED and state is not ARCHIVED) or cell.change is not None:
                break
            if cell.first > stop:
                break
            self.complete -= cell.last - cell.first + 1
            count += 1
        start = self.start_offset
        if count:
            last = cells[count - 1].last
            del cells[:count], self._firsts[:count]
            if not cells:
                self.start_offset = self.end_offset = last + 1
                return True
        if cells:
            self.start_offset = max(start, min(cells[0].first, stop))
        return self.start_offset != start

    def trim(self, offset: int) -> None:
        """Drop all cells and gaps before the log's new start offset."""
        self.close_gaps(self.start_offset, offset - 1)
        cells = self.cells
        count = bisect_left(self._firsts, offset)
        for cell in cells[:count]:
            self._count(cell, -1)
            if cell.last >= offset:
                if cell.batch is None:
                    cell.batch = Batch(cell.first, cell.last)
                cell.first = offset
                self._firsts[count - 1] = offset
                self._count(cell, 1)
                count -= 1
            else:
                cell.change, cell.lock_end_ms = None, NO_LOCK
        del cells[:count], self._firsts[:count]
        self.start_offset = offset
        if not cells:
            self.end_offset = offset
        self._free_from = max(self._free_from, offset)
