"""The elements of a share partition's window: runs of consecutive offsets with the same state.

Kafka keeps a state for each offset of a batch as soon as two of them differ. Here offsets stay together while
their states are equal, and are split where they begin to differ: a batch of 500 records of which one was
released is three cells and not 500 states.
"""

from __future__ import annotations

from konvene.delivery.contract import DeadLetter, RecordState

NO_MEMBER = ""
NO_LOCK, LAPSED = -1, -2
"""Values of `lock_end_ms`: no lock; a lock that ended while a change of the records was being written."""


class Batch:
    """The offset range of a batch that was acquired as a whole and then split into several cells."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def __repr__(self) -> str:
        return f"<batch {self.first}-{self.last}>"


class Cell:
    """A run of consecutive offsets in one state; `count` is their delivery count.

    `batch`: the batch that this cell is a part of, None if the cell is a whole batch. `change`: the pending
    write of its state, if any; until it is finished the state is not final, and no member can acquire the
    records."""

    __slots__ = (
        "acquired_ms", "batch", "change", "count", "first", "last", "lock_end_ms", "member_id", "state",
    )  # fmt: skip

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        count: int,
        member_id: str = NO_MEMBER,
        batch: Batch | None = None,
        acquired_ms: int = -1,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = member_id
        self.batch = batch
        self.change: PendingChange | None = None
        self.lock_end_ms = NO_LOCK
        self.acquired_ms = acquired_ms

    def __repr__(self) -> str:
        being_written = "?" if self.change is not None else ""
        return f"<{self.first}-{self.last} {self.state.name}{being_written} {self.count} {self.member_id}>"


class PendingChange:
    """The cells and counts that a `Change` affects, kept from the decision to the result of its write."""

    __slots__ = ("acknowledged", "archived", "can_fail", "cells", "dead_letters", "member_id")

    def __init__(self, member_id: str = NO_MEMBER, *, can_fail: bool = True) -> None:
        self.member_id = member_id
        """The member that gets the records back if the write fails."""
        self.can_fail = can_fail
        """False if the decision stays even if the write fails, such as the end of a lock."""
        self.cells: list[Cell] = []
        self.archived = 0
        """Number of archived records: rejected, or at the delivery count limit."""
        self.dead_letters: list[DeadLetter] = []
        self.acknowledged: list[tuple[int, int]] = []
        """Pairs of an acknowledge type and the number of records acknowledged with it."""

    def __repr__(self) -> str:
        return f"<change of {len(self.cells)} cells>"
