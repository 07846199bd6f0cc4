"""A share partition under random events has the same state for each offset as a simple model.

The model does not predict how many records a member acquires at once; it checks that they were available and
follows. It predicts the effects of acknowledgements, lock timeouts, failed writes and restarts.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import depth
from tests.delivery.model import (
    ACCEPT,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DONE,
    LOCK_MS,
    MEMBERS,
    REJECT,
    RELEASE,
    Batch,
    Offset,
    expected_states,
    offsets_of,
    state_after,
)  # fmt: skip
from tests.delivery.playing import CONTROL, KEY, TRANSACTIONAL, header

from konvene.delivery.contract import (
    Acknowledged,
    AcquireMode,
    Change,
    DeadLetter,
    DeliveryError,
    RecordState,
    Terms,
)  # fmt: skip
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.share_state.combine import combine
from konvene.share_state.requests import StateAnswer, StateBatch

members = st.sampled_from(MEMBERS)


class Deliveries(RuleBasedStateMachine):
    """A log, a share partition that reads it, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Batch] = []
        self.log_end = 0
        self.log_start = 0
        self.aborted: list[tuple[int, int, int]] = []
        """Aborted transactions: producer id, first offset, and offset of the marker."""
        self.now_ms = 0
        self.terms = Terms(LOCK_MS, 3, max_record_locks=12, dead_letters=True, read_committed=True)
        self.core = SharePartition(KEY, self.terms)
        self.core.load(StateAnswer(), 0, 0)
        self.offsets: dict[int, Offset] = {}
        self.read_to = 0
        """End of the window; an offset below it that is in neither `offsets` nor `gaps` has no record."""
        self.gaps: set[int] = set()
        self.start = 0
        self.writes: list[tuple[Change, str]] = []
        self.letters: list[DeadLetter] = []
        self.durable_start = 0
        self.durable: tuple[StateBatch, ...] = ()
        self.acknowledged: dict[int, RecordState] = {}
        """Final states of which the write was confirmed to members."""

    # --- the log ---

    @initialize(sizes=st.lists(st.integers(1, 6), max_size=4))
    def begin(self, sizes: list[int]) -> None:
        """Produce some records, which most faults need."""
        for size in sizes:
            self.produce(size)

    @rule(size=st.integers(1, 6))
    def produce(self, size: int) -> None:
        self.log.append(Batch(self.log_end, self.log_end + size - 1))
        self.log_end += size

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3), aborts=st.booleans())
    def produce_transaction(self, sizes: list[int], aborts: bool) -> None:
        producer_id = 7
        if aborts:
            self.aborted.append((producer_id, self.log_end, self.log_end + sum(sizes)))
        for size in sizes:
            self.log.append(Batch(self.log_end, self.log_end + size - 1, producer_id, TRANSACTIONAL))
            self.log_end += size
        self.log.append(Batch(self.log_end, self.log_end, producer_id, TRANSACTIONAL | CONTROL))
        self.log_end += 1

    @precondition(lambda self: len(self.log) > 2)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Remove a batch other than the last one or one of a transaction."""
        at = data.draw(st.integers(0, len(self.log) - 2))
        if self.log[at].producer_id < 0:
            del self.log[at]

    @precondition(lambda self: self.log_end > self.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [batch for batch in self.log if batch.last >= self.log_start]
        change = self.core.log_start_moved(self.log_start)
        if self.log_start > self.start:
            self.drop_below_log_start()
        self.move_start()
        self.expect_write(change, "")

    def drop_below_log_start(self) -> None:
        self.start = self.log_start
        self.read_to = max(self.read_to, self.start)
        self.offsets = {each: entry for each, entry in self.offsets.items() if each >= self.start}
        self.gaps = {each for each in self.gaps if each >= self.start}

    # --- members ---

    @rule(
        member=members,
        max_records=st.integers(0, 8),
        batches=st.integers(1, 4),
        size=st.integers(1, 6),
        limited=st.booleans(),
    )
    def acquire(self, member: str, max_records: int, batches: int, size: int, limited: bool) -> None:
        self.acquire_from_log(member, max_records, batches, size, limited)

    def acquire_from_log(self, member: str, max_records: int, batches: int, size: int, limited: bool) -> int:
        if not self.core.can_acquire:
            return 0
        offset = self.core.next_fetch_offset
        read = [batch for batch in self.log if batch.last >= offset][:batches]
        if not read or max_records == 0:
            return 0
        free_locks = self.terms.max_record_locks - (self.read_to - self.start if self.offsets else 0)
        aborted = [each[:2] for each in self.aborted if each[1] <= read[-1].last and each[2] >= offset]
        acquired, change = self.core.acquire(
            member,
            [header(*batch) for batch in read],
            aborted,
            fetch_offset=offset,
            mode=AcquireMode.RECORD_LIMIT if limited else AcquireMode.BATCH_OPTIMIZED,
            max_records=max_records,
            batch_size=size,
            now_ms=self.now_ms,
        )
        note(f"read {read} at {offset}: {acquired} {change}")
        aborted_offsets = self.aborted_offsets()
        count = 0
        for first, last, delivered in acquired:
            for each in range(first, last + 1):
                before = self.offsets.get(each)
                assert each >= self.start and each not in aborted_offsets
                assert each >= read[0].first and each <= read[-1].last
                if before is None:
                    assert delivered == 1 and (each in self.gaps or each >= self.read_to)
                else:
                    assert (before.state, before.write) == (AVAILABLE, None)
                    assert delivered == before.count + 1 <= self.terms.delivery_count_limit
                count += 1
        if limited:
            assert count <= max_records
        self.update_model(member, offset, read, acquired)
        new = [each for first, last, _ in acquired for each in range(first, last + 1)]
        if free_locks <= 0 and new:
            assert max(new) < self.read_to or not self.offsets
        self.expect_write(change, "")
        return count

    def update_model(self, member: str, offset: int, read: list[Batch], acquired: object) -> None:
        """Update the model from the window, checking that the read batches explain each change."""
        cells = {each: cell for cell in self.core._window.cells for each in range(cell.first, cell.last + 1)}
        aborted = self.aborted_offsets()
        acquired_offsets = {each for first, last, _ in acquired for each in range(first, last + 1)}  # type: ignore[attr-defined]
        passed = range(offset, read[0].first)
        for each in range(self.start, max([self.read_to, *cells]) + 1):
            entry, cell = self.offsets.get(each), cells.get(each)
            if each in acquired_offsets:
                delivered = entry.count + 1 if entry is not None else 1
                self.offsets[each] = Offset(ACQUIRED, delivered, member, self.now_ms + LOCK_MS)
            elif entry is not None and entry.state is AVAILABLE and each in passed:
                self.offsets[each] = Offset(ARCHIVED, entry.count)
            elif entry is not None and entry.state is AVAILABLE and each in aborted:
                if cell is None or cell.state is ARCHIVED:
                    self.offsets[each] = Offset(ARCHIVED, entry.count + 1)
            elif entry is None and cell is not None:
                # The rest of a batch above the record limit, or an aborted record.
                assert each in self.gaps or each >= self.read_to
                state = ARCHIVED if each in aborted and cell.state is ARCHIVED else AVAILABLE
                self.offsets[each] = Offset(state, cell.count)
        start = self.core.start_offset
        self.gaps = {
            each
            for each in self.gaps
            if each not in self.offsets and each not in passed and not (each in aborted and each < start)
        }
        self.read_to = max([self.read_to, *(each + 1 for each in self.offsets)])
        self.move_start()

    def aborted_offsets(self) -> set[int]:
        """Return the offsets of aborted transactions."""
        return {each for _, first, end in self.aborted for each in range(first, end)}

    @rule(member=members, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        acks = []
        for _ in range(data.draw(st.integers(1, 2))):
            first = data.draw(st.integers(max(self.start - 2, 0), max(self.read_to, self.start + 1)))
            last = first + data.draw(st.integers(0, 5))
            if data.draw(st.booleans()):
                types: tuple[int, ...] = (data.draw(st.integers(0, 4)),)
            else:
                types = tuple(data.draw(st.integers(0, 4)) for _ in range(first, last + 1))
            acks.append(Acknowledged(first, last, types))
        self.send_acknowledgements(member, acks)

    @precondition(lambda self: self.core._window.held)
    @rule(data=st.data(), kind=st.integers(0, 4), max_records=st.integers(1, 6), last=st.booleans())
    def acknowledge_held(self, data: st.DataObject, kind: int, max_records: int, last: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.core._window.held)))
        held = offsets_of(self.offsets, member)
        some = held[-max_records:] if last else held[:max_records]
        self.send_acknowledgements(member, [Acknowledged(each, each, (kind,)) for each in some])

    @precondition(lambda self: self.core._window.held)
    @rule(data=st.data(), kind=st.integers(0, 4), max_records=st.integers(1, 6), member=members)
    def acknowledge_records_of_another(
        self, data: st.DataObject, kind: int, max_records: int, member: str
    ) -> None:
        """Acknowledge records of a member, mostly as another one, which is rejected."""
        holder = data.draw(st.sampled_from(sorted(self.core._window.held)))
        held = offsets_of(self.offsets, holder)
        self.send_acknowledgements(member, [Acknowledged(each, each, (kind,)) for each in held[:max_records]])

    @rule(member=members, times=st.integers(1, 4), kind=st.sampled_from((RELEASE, RELEASE, ACCEPT)))
    def redeliver(self, member: str, times: int, kind: int) -> None:
        """Deliver records repeatedly up to the delivery limit, which single steps seldom reach."""
        for _ in range(times):
            self.acquire_from_log(member, 8, 4, 6, False)
            held = offsets_of(self.offsets, member)
            self.send_acknowledgements(member, [Acknowledged(each, each, (kind,)) for each in held])
            while self.writes:
                self.complete_write(False)

    @rule(one=members, other=members, answers=st.booleans())
    def acquire_during_a_write(self, one: str, other: str, answers: bool) -> None:
        """Acquire available records while the release of later ones is being written."""
        self.acquire_from_log(one, 8, 4, 6, False)
        held = offsets_of(self.offsets, one)
        if len(held) < 2:
            return
        self.send_acknowledgements(one, [Acknowledged(held[0], held[0], (RELEASE,))])
        while answers and self.writes:
            self.complete_write(False)
        self.send_acknowledgements(one, [Acknowledged(each, each, (RELEASE,)) for each in held[1:]])
        self.acquire_from_log(other, 8, 4, 6, False)

    @rule(member=members, kind=st.sampled_from((ACCEPT, RELEASE, REJECT)), fails=st.booleans())
    def expire_lock_during_a_write(self, member: str, kind: int, fails: bool) -> None:
        """Let a lock expire while an acknowledgement of its owner is being written; the write may fail."""
        self.acquire_from_log(member, 8, 4, 6, False)
        held = offsets_of(self.offsets, member)
        self.send_acknowledgements(member, [Acknowledged(each, each, (kind,)) for each in held])
        self.pass_time(LOCK_MS + 1)
        for _ in range(len(self.writes)):
            self.complete_write(fails)

    def send_acknowledgements(self, member: str, acks: list[Acknowledged]) -> None:
        expected, renewed, is_invalid = expected_states(self.offsets, self.start, self.terms, member, acks)
        try:
            change = self.core.acknowledge(member, acks, self.now_ms)
        except DeliveryError as error:
            assert is_invalid, (error, acks)
            assert error.error in (Errors.INVALID_RECORD_STATE, Errors.INVALID_REQUEST)
            return
        assert not is_invalid, acks
        assert change is not None or not expected
        if (
            change is not None and not expected
        ):  # Only the start offset is written: it has passed these offsets.
            assert not change.batches and min(ack.first_offset for ack in acks) < self.start
        for each in renewed:
            if each not in expected:
                self.offsets[each] = self.offsets[each]._replace(lock_end=self.now_ms + LOCK_MS)
        for each, state in expected.items():
            entry = self.offsets[each]
            self.offsets[each] = Offset(state, entry.count, "", entry.lock_end, change)
        self.expect_write(change, member)

    @rule(member=members)
    def leave(self, member: str) -> None:
        """SH12: a leaving member releases all of its records."""
        change = self.core.release(member)
        held = [each for each, entry in self.offsets.items() if entry.member == member]
        assert (change is None) == (not held)
        for each in held:
            entry = self.offsets[each]
            self.offsets[each] = Offset(
                state_after(self.terms, RELEASE, entry.count), entry.count, "", entry.lock_end, change
            )
        self.expect_write(change, member)

    @rule(ms=st.sampled_from((1, 10, 60, 150)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        change = self.core.expire(self.now_ms)
        for each, entry in self.offsets.items():
            if entry.lock_end < 0 or entry.lock_end > self.now_ms:
                continue
            if entry.write is not None:
                self.offsets[each] = entry._replace(lock_expired=True, lock_end=-1)
            else:
                self.offsets[each] = Offset(state_after(self.terms, RELEASE, entry.count), entry.count)
        self.expect_write(change, "")

    # --- writing ---

    def expect_write(self, change: Change | None, member: str) -> None:
        if change is None:
            return
        each = [offset for b in change.batches for offset in range(b.first_offset, b.last_offset + 1)]
        assert len(each) == len(set(each)), "no offset is written twice"
        assert change.start_offset >= self.durable_start, "the start never moves back"
        if self.writes:
            assert change.start_offset >= self.writes[-1][0].start_offset
        self.writes.append((change, member))

    @precondition(lambda self: self.writes)
    @rule(fails=st.booleans())
    def complete_write(self, fails: bool) -> None:
        change, _ = self.writes.pop(0)
        if not fails:
            self.persist(change)
        follow = self.core.finished(change, Errors.COORDINATOR_NOT_AVAILABLE if fails else Errors.NONE)
        if not fails:
            self.letters += change.dead_letters
        for each, entry in self.offsets.items():
            if entry.write is not change:
                continue
            if not fails:
                self.offsets[each] = Offset(entry.state, entry.count)
                if entry.state in DONE:
                    self.acknowledged[each] = entry.state
            elif entry.lock_expired:
                self.offsets[each] = Offset(state_after(self.terms, RELEASE, entry.count), entry.count)
            else:
                self.offsets[each] = Offset(ACQUIRED, entry.count, change.ticket.member_id, entry.lock_end)
        self.move_start()
        if follow is not None and follow.start_offset < 0:
            assert not follow.batches and follow.dead_letters
            self.letters += follow.dead_letters
            assert self.core.finished(follow, Errors.NONE) is None
        else:
            self.expect_write(follow, "")

    def persist(self, change: Change) -> None:
        self.durable_start = max(self.durable_start, change.start_offset)
        self.durable = combine(self.durable, change.batches, self.durable_start)

    def move_start(self) -> None:
        """SH4: the start offset moves over completed records and never back."""
        start = self.core.start_offset
        assert start >= self.start
        for each in range(self.start, start):
            entry = self.offsets.pop(each, None)
            assert entry is None or (entry.state in DONE and entry.write is None), (each, entry)
            assert each not in self.gaps
            self.acknowledged.pop(each, None)
        self.start = start
        self.read_to = max(self.read_to, start)

    @precondition(lambda self: self.letters)
    @rule()
    def copy(self) -> None:
        letter = self.letters.pop(0)
        change = self.core.archived(letter)
        for each in range(letter.first_offset, letter.last_offset + 1):
            entry = self.offsets.get(each)
            if entry is not None and entry.state is ARCHIVING:
                self.offsets[each] = Offset(ARCHIVED, entry.count)
        self.expect_write(change, "")

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """SH6: confirmed writes survive a restart; of the pending writes any prefix does."""
        for change, _ in self.writes[: data.draw(st.integers(0, len(self.writes)))]:
            self.persist(change)
        self.writes, self.letters = [], []
        self.core = SharePartition(KEY, self.terms)
        answer = StateAnswer(start_offset=self.durable_start, batches=self.durable)
        self.core.load(answer, 0, self.durable_start)
        self.letters = list(self.core.dead_letters)
        self.start, self.offsets, self.gaps = self.durable_start, {}, set()
        for first, last, state, count in self.durable:
            for each in range(first, last + 1):
                self.offsets[each] = Offset(RecordState(state), count)
        self.read_to = max(self.offsets, default=self.start - 1) + 1
        self.gaps = {each for each in range(self.start, self.read_to) if each not in self.offsets}
        for each, state in self.acknowledged.items():
            assert each < self.start or self.offsets[each].state is state, f"{each} was {state} for good"
        self.move_start()
        if self.log_start > self.start:
            change = self.core.log_start_moved(self.log_start)
            self.drop_below_log_start()
            self.move_start()
            self.expect_write(change, "")

    # --- invariants ---

    @invariant()
    def each_offset_equals_the_model(self) -> None:
        """SH1, SH2, SH3: one state, one holder with one lock, a count within the limit."""
        window = self.core._window
        found = {
            each: (cell.state, cell.count, cell.member_id, cell.change is not None)
            for cell in window.cells
            for each in range(cell.first, cell.last + 1)
        }
        expected = {
            each: (entry.state, entry.count, entry.member, entry.write is not None)
            for each, entry in self.offsets.items()
        }
        assert found == expected
        assert sum(cell.last - cell.first + 1 for cell in window.cells) == len(found)
        for state, _, member, _ in found.values():
            assert (state is ACQUIRED) == bool(member)
        held = [entry for entry in self.offsets.values() if entry.state is ACQUIRED]
        assert sum(window.held.values()) == len(held)
        locks = [entry.lock_end for entry in self.offsets.values() if entry.lock_end >= 0]
        assert self.core.lock_end_ms == min(locks, default=None)

    @invariant()
    def counters_are_right(self) -> None:
        window = self.core._window
        states = [(entry.state, entry.write) for entry in self.offsets.values()]
        assert window.complete == sum(state in DONE for state, _ in states)
        assert window.free == sum(entry == (AVAILABLE, None) for entry in states)
        assert {each for first, last in window.gaps for each in range(first, last + 1)} == self.gaps

    @invariant()
    def next_fetch_offset_is_the_first_available(self) -> None:
        """L6: the next fetch offset is the first available offset."""
        free = [
            each for each, entry in self.offsets.items() if (entry.state, entry.write) == (AVAILABLE, None)
        ]
        wanted = min([*free, *self.gaps], default=self.core._window.frontier)
        assert self.core.next_fetch_offset == wanted
        assert self.core.start_offset == self.start
        assert self.core.end_offset >= self.core.start_offset
        if free or self.gaps:
            assert self.core.can_acquire

    def teardown(self) -> None:
        """SH7: without further faults, every record is delivered and the window becomes empty."""
        for _ in range(400):
            while self.writes:
                self.complete_write(False)
            while self.letters:
                self.copy()
                while self.writes:
                    self.complete_write(False)
            if self.acquire_from_log("z", 8, 4, 500, False):
                held = offsets_of(self.offsets, "z")
                self.send_acknowledgements("z", [Acknowledged(each, each, (ACCEPT,)) for each in held])
                continue
            if self.writes:
                continue
            unread = [batch for batch in self.log if batch.last >= self.core.next_fetch_offset]
            if self.core.can_acquire and unread:
                continue
            if any(entry.member for entry in self.offsets.values()):
                for member in MEMBERS:
                    self.leave(member)
                continue
            break
        else:
            raise AssertionError(f"never done: {self.core}")
        remaining = [each for each in self.offsets if any(b.first <= each <= b.last for b in self.log)]
        completed = [each for each in remaining if self.offsets[each].state in DONE]
        assert remaining == completed, f"not delivered: {self.core} of {self.log}"


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(
    max_examples=int(os.environ.get("KONVENE_DELIVERY_EXAMPLES", depth.examples(120))),
    stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
