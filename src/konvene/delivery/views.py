"""What an operator sees of a share partition."""

from __future__ import annotations

from collections.abc import Iterator

from konvene.delivery.contract import InFlight, RecordState
from konvene.delivery.window import Window

DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


def in_flight(window: Window) -> Iterator[InFlight]:
    """What was delivered and is not done. What is being written counts as not done."""
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
    """How many batches the window has, in whatever states their records are."""
    number, before = 0, None
    for cell in window.cells:
        if cell.batch is None or cell.batch is not before:
            number += 1
        before = cell.batch
    return number
