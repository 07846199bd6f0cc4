"""What a share partition begins with: the state that was written, and the gaps in it.

A former leader may have given out records and had nothing written of them, and of later ones it had: then the
later ones are known here and the earlier ones are not. Those are gaps, which are read again.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.delivery.acknowledge import DELIVERED_TOO_OFTEN, REJECTED, give_up
from konvene.delivery.contract import DeadLetter, RecordState
from konvene.delivery.runs import Cell, Decided
from konvene.delivery.window import Window
from konvene.share_state.requests import StateBatch


def loaded(start_offset: int, batches: Iterable[StateBatch]) -> Window:
    """The window that the state tells of. Raises ValueError if it contradicts itself."""
    window = Window(start_offset)
    known = start_offset
    gaps = []
    for first, last, state, count in batches:
        if first < known:
            raise ValueError(f"offsets {first} to {last} are told of again, or lie before {start_offset}")
        if last < first:
            raise ValueError(f"offsets {first} to {last} are in the wrong order")
        if first > known:
            gaps.append((known, first - 1))
        known = last + 1
        kept = RecordState(state)
        # Who had them is not written down, so nobody has them.
        window.add(Cell(first, last, RecordState.AVAILABLE if kept is RecordState.ACQUIRED else kept, count))
    window.start_offset = start_offset
    window.gaps = gaps
    window.settle()
    return window


def unfinished(window: Window, limit: int) -> tuple[DeadLetter, ...]:
    """Records that were given up and may not have been copied. Why they were is not written, but it shows."""
    decided = Decided()
    for cell in window.cells:
        if cell.state is RecordState.ARCHIVING:
            give_up(decided, cell, DELIVERED_TOO_OFTEN if cell.count >= limit else REJECTED)
    return tuple(decided.letters)
