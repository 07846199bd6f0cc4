"""Views of a share partition's window for operators."""

from __future__ import annotations

from collections.abc import Iterator

from konvene.delivery.contract import InFlight, RecordState
from konvene.delivery.window import Window

DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


def in_flight(window: Window) -> Iterator[InFlight]:
    """Yield the ranges of delivered records that are not final, including those with a pending write."""
    for cell in window.cells:
        if cell.change is None and (cell.state in DONE or cell.count == 0):
            continue
        held = cell.state is RecordState.ACQUIRED
        yield InFlight(
            cell.first,
            cell.last,
            cell.state,
            cell.member_id,
            cell.count,
            cell.acquired_ms if held else -1,
            cell.lock_end_ms if held else -1,
        )


def in_flight_batches(window: Window) -> int:
    """Return the number of batches in the window, whatever the states of their records."""
    number, before = 0, None
    for cell in window.cells:
        if cell.batch is None or cell.batch is not before:
            number += 1
        before = cell.batch
    return number
