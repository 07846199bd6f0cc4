"""Rows of rebalances that completed and left units of departed members without an owner.

How long such a unit is unavailable is known when it has an owner again, and counts for the rebalance that
left it open. So the row of that rebalance waits until all of these units have an owner, or none can get one
any more. The end of the log does not end the wait: the row then has the time of the gaps that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from konvene.pipeline.reduce.columns import COLUMNS
from konvene.pipeline.reduce.ownership import Gap, Row
from konvene.pipeline.reduce.position import MISSING

__all__ = ["LeftOpen"]

_UNAVAILABLE_MS, _EVIDENCE = map(COLUMNS["rebalance"].index, ("unavailable_ms", "evidence"))


@dataclass(slots=True)
class _Waiting:
    """A row of `rebalance`, with the number of gaps that it waits for."""

    row: Row
    start_ms: int | None
    gaps: int


@dataclass(slots=True)
class LeftOpen:
    """The rows of one group that wait for gaps to end, by epoch."""

    waiting: dict[int, _Waiting] = field(default_factory=dict)

    def add(self, epoch: int, row: Row, start_ms: int | None, gaps: int) -> None:
        """Let a row wait for this many gaps, which have `epoch` as `left_open_by`; its rebalance began at
        `start_ms`."""
        self.waiting[epoch] = _Waiting(row, start_ms, gaps)

    def end_gap(self, gap: Gap, end_ms: int) -> Row | None:
        """Count a gap that ends at `end_ms`; return the row if it was the last one that it waited for."""
        found = self.waiting.get(gap.left_open_by)
        if found is None:
            return None
        known = found.row[_UNAVAILABLE_MS]
        if isinstance(known, int) and found.start_ms is not None:
            total_ms = known + max(end_ms - max(gap.at.ms, found.start_ms), 0)
            found.row = _replaced(found.row, _UNAVAILABLE_MS, total_ms)
        found.gaps -= 1
        if found.gaps:
            return None
        del self.waiting[gap.left_open_by]
        return found.row

    def rows(self) -> Iterator[Row]:
        """Yield the rows that wait, with the time of the gaps that have ended."""
        return (each.row for _, each in sorted(self.waiting.items()))

    def clear(self, *, is_missing: bool = False) -> list[Row]:
        """Return the rows that wait, and stop waiting: none of their gaps can end any more.

        With `is_missing`, records with the ends of these gaps may be missing."""
        rows, self.waiting = list(self.rows()), {}
        if not is_missing:
            return rows
        return [_replaced(_replaced(row, _UNAVAILABLE_MS, None), _EVIDENCE, MISSING) for row in rows]


def _replaced(row: Row, column: int, value: object) -> Row:
    return (*row[:column], value, *row[column + 1 :])
