"""A share partition: the records of one partition as the members of a share group get them (KIP-932).

Each record of the window is in one state. It is available; it is acquired by a member, until that says what
became of it or its lock ends; it is acknowledged or archived, which is forever. Where the group has a dead
letter queue, records that are given up are archiving until a copy is made. The window moves on over what is
done (`window`).

Every decision counts at once and is written afterwards. Whoever asks hears it when `finished` was told how
the writing went: if it failed, the member has its records again, unless their lock has ended meanwhile. What
follows from a lock that ended, and from a log that lost its beginning, holds whether it could be written or
not. That a record was acquired is never written: after a restart, nobody has anything.

Pure: no clock, no log, no coordinator. Times are milliseconds that only grow. Behaves as Kafka's
`SharePartition`; the places where it does not are named where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from konvene.codec.batches import BatchHeader
from konvene.delivery.aborted import aborted_ranges, archive, without
from konvene.delivery.acknowledge import DELIVERED_TOO_OFTEN, RENEW, acknowledge, give_up, given_back
from konvene.delivery.acquire import Acquisition, pass_over_missing
from konvene.delivery.contract import (
    Acknowledged,
    Acquired,
    AcquireMode,
    Change,
    DeadLetter,
    InFlight,
    RecordState,
    Terms,
)
from konvene.delivery.counts import Counts
from konvene.delivery.loading import loaded, unfinished
from konvene.delivery.runs import LAPSED, NO_LOCK, Cell, Decided
from konvene.delivery.views import in_flight, in_flight_batches
from konvene.delivery.window import Window
from konvene.errors import Errors
from konvene.share_state.requests import SharePartitionKey, StateAnswer, StateBatch

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED

Acquisitions = tuple[tuple[Acquired, ...], "Change | None"]

NOT_TOLD = -1


class SharePartition:
    """See the top of this file."""

    __slots__ = (
        "_unsaid", "_window", "counts", "dead_letters", "key", "leader_epoch", "state_epoch", "terms",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, terms: Terms) -> None:
        self.key = key
        self.terms = terms
        """What records are delivered by from now on."""
        self.state_epoch = 0
        self.leader_epoch = 0
        self.counts = Counts()
        self.dead_letters: tuple[DeadLetter, ...] = ()
        """What `load` found that has to be copied: each of them is to be told to `archived`."""
        self._window = Window()
        self._unsaid = -1
        """Behind what was decided and could not be written; -1 once a start behind it has been."""

    def __repr__(self) -> str:
        return f"<{self.key} {self._window!r}>"

    # --- what it is like ---

    @property
    def start_offset(self) -> int:
        """All records before it are done."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset that was read; the one to be read next where nothing is in flight."""
        return self._window.end_offset

    @property
    def next_fetch_offset(self) -> int:
        """Where the log is to be read next."""
        return self._window.next_fetch_offset()

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch can have anything: something is available again, or the window is not full."""
        window = self._window
        if window.free or window.gaps or not window.cells:
            return True
        return window.in_flight < self.terms.max_record_locks

    @property
    def lock_end_ms(self) -> int | None:
        """When the first lock ends; None where there is none."""
        return self._window.locks.first_end_ms()

    @property
    def delivery_complete_count(self) -> int:
        """How many records of the window are acknowledged or archived."""
        return self._window.complete

    @property
    def in_flight_records(self) -> int:
        """All offsets of the window, as Kafka counts them."""
        return self._window.in_flight

    @property
    def in_flight_batches(self) -> int:
        return in_flight_batches(self._window)

    def in_flight(self) -> Iterator[InFlight]:
        """What was delivered and is not done, in order. Look through it before anything else is decided."""
        return in_flight(self._window)

    # --- what changes it ---

    def load(self, read: StateAnswer, leader_epoch: int, start_offset: int) -> None:
        """Begin with what was written. Raises ValueError if that contradicts itself.

        `start_offset` is the answer's, or where the group begins if it has never read this partition."""
        self._window = loaded(start_offset, read.batches)
        self._unsaid = -1
        self.state_epoch = read.state_epoch
        self.leader_epoch = leader_epoch
        self.dead_letters = unfinished(self._window, self.terms.delivery_count_limit)

    def acquire(
        self,
        member_id: str,
        headers: Sequence[BatchHeader],
        aborted: Sequence[tuple[int, int]],
        *,
        fetch_offset: int,
        mode: AcquireMode,
        max_records: int,
        batch_size: int,
        now_ms: int,
    ) -> Acquisitions:
        """Give a member what it may have of batches that were read at `fetch_offset`.

        `aborted` are the transactions (producer id, first offset) that a group which reads committed records
        does not get to see. There is a change only where the start moves and nobody will acknowledge that."""
        if max_records <= 0 or not headers:
            return (), None
        window = self._window
        news = pass_over_missing(window, fetch_offset, headers[0].base_offset)
        taking = Acquisition(window, self.terms, member_id, headers, mode, batch_size, now_ms)
        taking.run(fetch_offset, max_records, self.terms.max_record_locks)
        acquired = taking.acquired
        if aborted and acquired:
            acquired, dropped = without(acquired, aborted_ranges(headers, aborted))
            archive(window, dropped)
            news = news or bool(dropped)
        for first, last, count in acquired:
            self.counts.delivered += last - first + 1
            if count > 1:
                self.counts.redelivered += last - first + 1
        if news and not acquired and window.settle():
            return (), self._change(Decided(can_fail=False))
        return tuple(acquired), None

    def acknowledge(self, member_id: str, acks: Sequence[Acknowledged], now_ms: int) -> Change | None:
        """Take what a member says. None if there is nothing to write. Raises `DeliveryError`.

        It may speak of records that the start has passed. It is told that all is well, as in Kafka, but not
        before it is written that the start has."""
        window = self._window
        decided, renewed = acknowledge(window, self.terms, member_id, acks)
        for first, last in renewed:
            for cell in window.between(first, last):
                if cell.state is ACQUIRED:
                    window.locks.lock(cell, now_ms + self.terms.lock_ms)
            self.counts.acknowledged[RENEW] += last - first + 1
        if decided.cells or (self._unsaid >= 0 and any(a.first_offset < window.start_offset for a in acks)):
            return self._change(decided)
        return None

    def release(self, member_id: str) -> Change | None:
        """The member's session is over, or the member is gone: take back what it has."""
        window = self._window
        if member_id not in window.held:
            return None
        decided = Decided(member_id)
        for cell in window.cells:
            if cell.state is ACQUIRED and cell.member_id == member_id:
                self._give_back(cell, decided)
        return self._change(decided)

    def expire(self, now_ms: int) -> Change | None:
        """Take back what was locked until now. It is available at once, can it be written or not."""
        window = self._window
        decided = Decided(can_fail=False)
        over = sorted(window.locks.ended(now_ms), key=_first_offset)
        for cell in over:
            self.counts.lock_timeouts += cell.last - cell.first + 1
            if cell.change is not None:
                cell.lock_end_ms = LAPSED
                continue
            self._give_back(cell, decided)
        return self._change(decided) if decided.cells else None

    def log_start_moved(self, offset: int) -> Change | None:
        """The log has nothing before this offset any more.

        That is written with what is written next, or now where no member has anything to acknowledge."""
        window = self._window
        if offset <= window.start_offset:
            return None
        was_empty = not window.cells
        window.trim(offset)
        window.settle()
        return None if was_empty or window.held else self._change(Decided(can_fail=False))

    def finished(self, change: Change, error: Errors) -> Change | None:
        """Learn how the writing of a change went. What is to be written next, if anything.

        That change may have nothing but dead letters: of decisions that hold though they were not written."""
        decided: Decided = change.ticket
        follow = None
        if not error:
            self._commit(decided)
            if change.start_offset >= self._unsaid:
                self._unsaid = -1
        elif decided.can_fail:
            follow = self._undo(decided)
        else:
            self._unsaid = max(self._unsaid, *(cell.last + 1 for cell in decided.cells), -1)
            if change.dead_letters:
                follow = Change(NOT_TOLD, NOT_TOLD, (), change.dead_letters, Decided(can_fail=False))
        self._window.settle()
        return follow

    def archived(self, letter: DeadLetter) -> Change | None:
        """The copies of a dead letter are made, or cannot be: archive its records."""
        window = self._window
        decided = Decided(can_fail=False)
        for cell in window.between(letter.first_offset, letter.last_offset):
            if cell.state is ARCHIVING and cell.change is None:
                window.move(cell, ARCHIVED)
                decided.cells.append(cell)
        return self._change(decided) if decided.cells else None

    # --- decided, written, undone ---

    def _give_back(self, cell: Cell, decided: Decided) -> None:
        state = given_back(cell, self.terms)
        if state is not AVAILABLE:
            decided.given_up += cell.last - cell.first + 1
        decided.cells.append(cell)
        self._window.move(cell, state, change=decided if decided.can_fail else None)
        if state is ARCHIVING:
            give_up(decided, cell, DELIVERED_TOO_OFTEN)

    def _change(self, decided: Decided) -> Change:
        window = self._window
        batches = _as_batches(decided.cells)
        if not decided.can_fail:
            self.counts.archived += decided.given_up
        return Change(window.start_offset, window.complete, batches, tuple(decided.letters), decided)

    def _commit(self, decided: Decided) -> None:
        window = self._window
        for cell in decided.cells:
            if cell.change is decided:
                cell.lock_end_ms = NO_LOCK
                if cell.state is AVAILABLE:
                    window.move(cell, AVAILABLE)
                else:
                    cell.change = None
        if decided.can_fail:
            self.counts.archived += decided.given_up
        acknowledged = self.counts.acknowledged
        for said, records in decided.said:
            acknowledged[said] += records

    def _undo(self, decided: Decided) -> Change | None:
        """Give the records to the member again; those whose lock has ended are taken back after all."""
        window = self._window
        taken_back = Decided(can_fail=False)
        for cell in decided.cells:
            if cell.change is not decided:
                continue
            lapsed = cell.lock_end_ms == LAPSED
            window.move(cell, ACQUIRED, decided.member_id)
            if lapsed:
                cell.lock_end_ms = NO_LOCK
                self._give_back(cell, taken_back)
        return self._change(taken_back) if taken_back.cells else None


def _first_offset(cell: Cell) -> int:
    return cell.first


def _as_batches(cells: Iterable[Cell]) -> tuple[StateBatch, ...]:
    """The cells as they are written: neighbours in the same state, delivered equally often, are one."""
    row: list[StateBatch] = []
    for cell in cells:
        if row:
            first, last, state, count = row[-1]
            if last + 1 == cell.first and state == cell.state and count == cell.count:
                row[-1] = StateBatch(first, cell.last, state, count)
                continue
        row.append(StateBatch(cell.first, cell.last, int(cell.state), cell.count))
    return tuple(row)
