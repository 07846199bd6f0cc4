"""What the window of a share partition is made of: runs of offsets to which the same happened.

Kafka keeps a state for each offset of a batch as soon as two of them differ. Here offsets stay together as
long as they are alike, and are cut apart where they begin to differ: a batch of 500 of which one record was
given back is three cells and not 500 states.
"""

from __future__ import annotations

from konvene.delivery.contract import DeadLetter, RecordState

NOBODY = ""
NO_LOCK, LAPSED = -1, -2
"""A lock's end where there is none, and where it ended while what became of the records was being written."""


class Batch:
    """Offsets that were acquired as one, of which some were then treated differently."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def __repr__(self) -> str:
        return f"<batch {self.first}-{self.last}>"


class Cell:
    """A run of offsets in one state.

    `batch` is None as long as the cell is a whole batch. `change` is what is being written about it: until
    that is done the state is not final, and nobody can have the records."""

    __slots__ = (
        "acquired_ms", "batch", "change", "count", "first", "last", "lock_end_ms", "member_id", "state",
    )  # fmt: skip

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        count: int,
        member_id: str = NOBODY,
        batch: Batch | None = None,
        acquired_ms: int = -1,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = member_id
        self.batch = batch
        self.change: Decided | None = None
        self.lock_end_ms = NO_LOCK
        self.acquired_ms = acquired_ms

    def __repr__(self) -> str:
        being_written = "?" if self.change is not None else ""
        return f"<{self.first}-{self.last} {self.state.name}{being_written} {self.count} {self.member_id}>"


class Decided:
    """What one change is about, from the decision until it is known how its writing went."""

    __slots__ = ("can_fail", "cells", "given_up", "letters", "member_id", "said")

    def __init__(self, member_id: str = NOBODY, *, can_fail: bool = True) -> None:
        self.member_id = member_id
        """Who has the records again if the writing fails."""
        self.can_fail = can_fail
        """False where the decision holds however the writing goes: a lock that ended has ended."""
        self.cells: list[Cell] = []
        self.given_up = 0
        """Records that were rejected, or delivered too often."""
        self.letters: list[DeadLetter] = []
        self.said: list[tuple[int, int]] = []
        """Acknowledge types and to how many records each was given."""

    def __repr__(self) -> str:
        return f"<decided of {len(self.cells)} cells>"
