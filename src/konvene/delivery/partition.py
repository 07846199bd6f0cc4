"""A share partition: one partition's records as the members of a share group receive them (KIP-932).

Each record of the window is in one state. It is available; it is acquired by a member, until the member
acknowledges it or its lock ends; it is acknowledged or archived, which is final. If the group has a dead
letter topic, records are archiving until they are copied there. The window advances over final records
(`window`).

Every decision takes effect at once and is written afterwards. A request is answered when `finished` was
called with the result of the write: if it failed, the member gets its records back, unless their lock has
ended meanwhile. The effects of a lock's end and of a trimmed log stay, written or not. Acquisitions are never
written: after a restart no record is acquired.

Pure: no clock, no log, no coordinator. Times are milliseconds of a monotonic clock. It behaves as Kafka's
`SharePartition`; differences are noted where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from konvene.codec.batches import BatchHeader
from konvene.delivery.aborted import aborted_ranges, archive, split_aborted
from konvene.delivery.acknowledge import (
    DELIVERED_TOO_OFTEN,
    RENEW,
    acknowledge,
    add_dead_letter,
    released_state,
)
from konvene.delivery.acquire import Acquisition, archive_missing
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
from konvene.delivery.loading import load_window, pending_dead_letters
from konvene.delivery.runs import LAPSED, NO_LOCK, Cell, PendingChange
from konvene.delivery.views import in_flight, in_flight_batches
from konvene.delivery.window import Window
from konvene.errors import Errors
from konvene.share_state.requests import SharePartitionKey, StateAnswer, StateBatch

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED

Acquisitions = tuple[tuple[Acquired, ...], "Change | None"]

UNCHANGED = -1


class SharePartition:
    """The delivery state machine of one share partition: its window, locks and pending writes."""

    __slots__ = (
        "_unwritten_end", "_window", "counts", "dead_letters", "key", "leader_epoch", "state_epoch", "terms",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, terms: Terms) -> None:
        self.key = key
        self.terms = terms
        """The delivery configs for all further requests."""
        self.state_epoch = 0
        self.leader_epoch = 0
        self.counts = Counts()
        self.dead_letters: tuple[DeadLetter, ...] = ()
        """Archiving records that `load` found; after copying each of them the shell calls `archived`."""
        self._window = Window()
        self._unwritten_end = -1
        """Offset behind all final records whose state could not be written; -1 if the start offset passed
        it."""

    def __repr__(self) -> str:
        return f"<{self.key} {self._window!r}>"

    # --- views ---

    @property
    def start_offset(self) -> int:
        """The first offset that is not final."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset of the window; if the window is empty, the next offset to read."""
        return self._window.end_offset

    @property
    def next_fetch_offset(self) -> int:
        """The offset from which the log is to be read next."""
        return self._window.next_fetch_offset()

    @property
    def can_acquire(self) -> bool:
        """True if a fetch can acquire anything: available records, gaps, or new ones."""
        window = self._window
        if window.free or window.gaps or not window.cells:
            return True
        return window.in_flight < self.terms.max_record_locks

    @property
    def lock_end_ms(self) -> int | None:
        """The time when the first acquisition lock ends; None without locks."""
        return self._window.locks.first_end_ms()

    @property
    def delivery_complete_count(self) -> int:
        """Number of acknowledged and archived records in the window."""
        return self._window.complete

    @property
    def in_flight_records(self) -> int:
        """Number of offsets from the start to the end of the window, as Kafka counts them."""
        return self._window.in_flight

    @property
    def in_flight_batches(self) -> int:
        """Number of batches in the window."""
        return in_flight_batches(self._window)

    def in_flight(self) -> Iterator[InFlight]:
        """Yield delivered records that are not final, in order. Consume it before the next decision."""
        return in_flight(self._window)

    # --- decisions ---

    def load(self, read: StateAnswer, leader_epoch: int, start_offset: int) -> None:
        """Load the written state. Raises ValueError if its batches overlap or are out of order.

        `start_offset` is that of the state, or where the group starts if it has never read this partition."""
        self._window = load_window(start_offset, read.batches)
        self._unwritten_end = -1
        self.state_epoch = read.state_epoch
        self.leader_epoch = leader_epoch
        self.dead_letters = pending_dead_letters(self._window, self.terms.delivery_count_limit)

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
        """Acquire records for a member from `headers`, the batches that were read from `fetch_offset`.

        `aborted` has (producer id, first offset) of aborted transactions if the group reads committed
        records. `max_records`: how many to acquire, as strictly as `mode` has it; `batch_size`: how many
        records one acquired range should have at most. Return the acquired ranges, and a change if the start
        offset moved although nothing was acquired."""
        if max_records <= 0 or not headers:
            return (), None
        window = self._window
        is_changed = archive_missing(window, fetch_offset, headers[0].base_offset)
        acquisition = Acquisition(window, self.terms, member_id, headers, mode, batch_size, now_ms)
        acquisition.run(fetch_offset, max_records, self.terms.max_record_locks)
        acquired = acquisition.acquired
        if aborted and acquired:
            acquired, dropped = split_aborted(acquired, aborted_ranges(headers, aborted))
            archive(window, dropped)
            is_changed = is_changed or bool(dropped)
        for first, last, count in acquired:
            self.counts.delivered += last - first + 1
            if count > 1:
                self.counts.redelivered += last - first + 1
        if is_changed and not acquired and window.settle():
            return (), self._change(PendingChange(can_fail=False))
        return tuple(acquired), None

    def acknowledge(self, member_id: str, acks: Sequence[Acknowledged], now_ms: int) -> Change | None:
        """Apply a member's acknowledgements; return the change to write, if any. Raises `DeliveryError`.

        Acknowledgements of records before the start offset succeed, as in Kafka. If that start offset is not
        written yet, a change without batches is returned, so that the response waits for it."""
        window = self._window
        pending, renewed = acknowledge(window, self.terms, member_id, acks)
        for first, last in renewed:
            for cell in window.between(first, last):
                if cell.state is ACQUIRED:
                    window.locks.lock(cell, now_ms + self.terms.lock_ms)
            self.counts.acknowledged[RENEW] += last - first + 1
        if pending.cells or (
            self._unwritten_end >= 0 and any(a.first_offset < window.start_offset for a in acks)
        ):
            return self._change(pending)
        return None

    def release(self, member_id: str) -> Change | None:
        """Release all records that a member has acquired, when it left or its session ended."""
        window = self._window
        if member_id not in window.held:
            return None
        pending = PendingChange(member_id)
        for cell in window.cells:
            if cell.state is ACQUIRED and cell.member_id == member_id:
                self._release(cell, pending)
        return self._change(pending)

    def expire(self, now_ms: int) -> Change | None:
        """Release the records whose lock has ended. They stay released even if the write fails."""
        window = self._window
        pending = PendingChange(can_fail=False)
        expired = sorted(window.locks.ended(now_ms), key=_first_offset)
        for cell in expired:
            self.counts.lock_timeouts += cell.last - cell.first + 1
            if cell.change is not None:
                cell.lock_end_ms = LAPSED
                continue
            self._release(cell, pending)
        return self._change(pending) if pending.cells else None

    def log_start_moved(self, offset: int) -> Change | None:
        """Drop all records before the log's new start offset.

        Return a change to write it if no member has acquired records; else the next change will include
        it."""
        window = self._window
        if offset <= window.start_offset:
            return None
        was_empty = not window.cells
        window.trim(offset)
        window.settle()
        return None if was_empty or window.held else self._change(PendingChange(can_fail=False))

    def finished(self, change: Change, error: Errors) -> Change | None:
        """Commit a change that was written, or undo it after an `error`; return the next change to write.

        Some decisions stay although their write failed, such as the release of records whose lock has ended.
        If such a decision has dead letters, the next change has these alone, so that they are copied all the
        same. Return None if nothing is left to write."""
        pending = change.ticket
        follow = None
        if not error:
            self._commit(pending)
            if change.start_offset >= self._unwritten_end:
                self._unwritten_end = -1
        elif pending.can_fail:
            follow = self._undo(pending)
        else:
            self._unwritten_end = max(self._unwritten_end, *(cell.last + 1 for cell in pending.cells), -1)
            if change.dead_letters:
                follow = Change(UNCHANGED, UNCHANGED, (), change.dead_letters, PendingChange(can_fail=False))
        self._window.settle()
        return follow

    def archived(self, letter: DeadLetter) -> Change | None:
        """Archive the records of a dead letter. Called when they were copied, or cannot be copied.

        Return the change to write; None if no records are archiving any more."""
        window = self._window
        pending = PendingChange(can_fail=False)
        for cell in window.between(letter.first_offset, letter.last_offset):
            if cell.state is ARCHIVING and cell.change is None:
                window.move(cell, ARCHIVED)
                pending.cells.append(cell)
        return self._change(pending) if pending.cells else None

    # --- commit and rollback ---

    def _release(self, cell: Cell, pending: PendingChange) -> None:
        state = released_state(cell, self.terms)
        if state is not AVAILABLE:
            pending.archived += cell.last - cell.first + 1
        pending.cells.append(cell)
        self._window.move(cell, state, change=pending if pending.can_fail else None)
        if state is ARCHIVING:
            add_dead_letter(pending, cell, DELIVERED_TOO_OFTEN)

    def _change(self, pending: PendingChange) -> Change:
        window = self._window
        batches = _as_batches(pending.cells)
        if not pending.can_fail:
            self.counts.archived += pending.archived
        return Change(window.start_offset, window.complete, batches, tuple(pending.dead_letters), pending)

    def _commit(self, pending: PendingChange) -> None:
        window = self._window
        for cell in pending.cells:
            if cell.change is pending:
                cell.lock_end_ms = NO_LOCK
                if cell.state is AVAILABLE:
                    window.move(cell, AVAILABLE)
                else:
                    cell.change = None
        if pending.can_fail:
            self.counts.archived += pending.archived
        acknowledged = self.counts.acknowledged
        for ack_type, records in pending.acknowledged:
            acknowledged[ack_type] += records

    def _undo(self, pending: PendingChange) -> Change | None:
        """Give the records of a failed change back to its member.

        Return a change that releases those whose lock has ended meanwhile, if any."""
        window = self._window
        released = PendingChange(can_fail=False)
        for cell in pending.cells:
            if cell.change is not pending:
                continue
            lapsed = cell.lock_end_ms == LAPSED
            window.move(cell, ACQUIRED, pending.member_id)
            if lapsed:
                cell.lock_end_ms = NO_LOCK
                self._release(cell, released)
        return self._change(released) if released.cells else None


def _first_offset(cell: Cell) -> int:
    return cell.first


def _as_batches(cells: Iterable[Cell]) -> tuple[StateBatch, ...]:
    """Return cells as state batches, one for adjacent cells with equal state and delivery count."""
    row: list[StateBatch] = []
    for cell in cells:
        if row:
            first, last, state, count = row[-1]
            if last + 1 == cell.first and state == cell.state and count == cell.count:
                row[-1] = StateBatch(first, cell.last, state, count)
                continue
        row.append(StateBatch(cell.first, cell.last, int(cell.state), cell.count))
    return tuple(row)
