"""Loads a share partition's window from its written state, and finds the gaps in it.

A former leader may have delivered records without writing their state, and then written that of later ones.
Offsets that the state lacks in between are gaps: they are read and delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.delivery.acknowledge import DELIVERED_TOO_OFTEN, REJECTED, add_dead_letter
from konvene.delivery.contract import DeadLetter, RecordState
from konvene.delivery.runs import Cell, PendingChange
from konvene.delivery.window import Window
from konvene.share_state.requests import StateBatch


def load_window(start_offset: int, batches: Iterable[StateBatch]) -> Window:
    """Return the window of a written state. Raises ValueError if batches overlap or are out of order."""
    window = Window(start_offset)
    known = start_offset
    gaps = []
    for first, last, state, count in batches:
        if first < known:
            raise ValueError(f"offsets {first} to {last} are repeated, or lie before {start_offset}")
        if last < first:
            raise ValueError(f"offsets {first} to {last} are in the wrong order")
        if first > known:
            gaps.append((known, first - 1))
        known = last + 1
        written_state = RecordState(state)
        # The state does not have the member of acquired records: they are available again.
        loaded = RecordState.AVAILABLE if written_state is RecordState.ACQUIRED else written_state
        window.add(Cell(first, last, loaded, count))
    window.start_offset = start_offset
    window.gaps = gaps
    window.settle()
    return window


def pending_dead_letters(window: Window, limit: int) -> tuple[DeadLetter, ...]:
    """Return the records in state archiving, which still have to be copied to the dead letter topic.

    A former leader may have copied them already. Their cause is not stored: it is inferred from whether they
    reached `limit`, the delivery count limit."""
    change = PendingChange()
    for cell in window.cells:
        if cell.state is RecordState.ARCHIVING:
            add_dead_letter(change, cell, DELIVERED_TOO_OFTEN if cell.count >= limit else REJECTED)
    return tuple(change.dead_letters)
