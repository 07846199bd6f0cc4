"""Whatever happens to a share partition, each offset is where a model that knows them one by one has it.

The model does not know how much a member is given at once; it checks that what it was given could be given,
and follows. All else it says beforehand: what becomes of acknowledgements, locks, failed writes, restarts.
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
    Known,
    after,
    held_by,
    judged,
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


class Deliveries(RuleBasedStateMachine):
    """A log, a share partition that reads it, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Batch] = []
        self.log_end = 0
        self.log_start = 0
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, and that of the marker."""
        self.now = 0
        self.terms = Terms(
            lock_ms=LOCK_MS,
            delivery_count_limit=3,
            max_record_locks=12,
            dead_letters=True,
            read_committed=True,
        )
        self.core = SharePartition(KEY, self.terms)
        self.core.load(StateAnswer(), 0, 0)
        self.known: dict[int, Known] = {}
        self.read_to = 0
        """Offsets from here on are unknown; before it those that are neither known nor lost are not there."""
        self.gaps: set[int] = set()
        self.start = 0
        self.writes: list[tuple[Change, str]] = []
        self.letters: list[DeadLetter] = []
        self.durable_start = 0
        self.durable: tuple[StateBatch, ...] = ()
        self.promised: dict[int, RecordState] = {}
        """What members were told is written."""

    # --- the log ---

    @initialize(sizes=st.lists(st.integers(1, 6), max_size=4))
    def begin(self, sizes: list[int]) -> None:
        """Most that can go wrong needs some records."""
        for size in sizes:
            self.produce(size)

    @rule(size=st.integers(1, 6))
    def produce(self, size: int) -> None:
        self.log.append(Batch(self.log_end, self.log_end + size - 1))
        self.log_end += size

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3), aborts=st.booleans())
    def transact(self, sizes: list[int], aborts: bool) -> None:
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
        """A batch vanishes, but for the last one and transactions."""
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
            self.start = self.log_start
            self.read_to = max(self.read_to, self.start)
            self.known = {offset: has for offset, has in self.known.items() if offset >= self.start}
            self.gaps = {offset for offset in self.gaps if offset >= self.start}
        self.moved()
        self.wrote(change, "nobody")

    # --- members ---

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(0, 8),
        batches=st.integers(1, 4),
        size=st.integers(1, 6),
        limited=st.booleans(),
    )
    def take(self, member: str, most: int, batches: int, size: int, limited: bool) -> None:
        self.take_from_log(member, most, batches, size, limited)

    def take_from_log(self, member: str, most: int, batches: int, size: int, limited: bool) -> int:
        if not self.core.can_acquire:
            return 0
        offset = self.core.next_fetch_offset
        read = [batch for batch in self.log if batch.last >= offset][:batches]
        if not read or most == 0:
            return 0
        room = self.terms.max_record_locks - (self.read_to - self.start if self.known else 0)
        acquired, change = self.core.acquire(
            member,
            [header(*batch) for batch in read],
            [(who, first) for who, first, end in self.aborted if first <= read[-1].last and end >= offset],
            fetch_offset=offset,
            mode=AcquireMode.RECORD_LIMIT if limited else AcquireMode.BATCH_OPTIMIZED,
            max_records=most,
            batch_size=size,
            now_ms=self.now,
        )
        note(f"read {read} at {offset}: {acquired} {change}")
        hidden = self.hidden()
        count = 0
        for first, last, delivered in acquired:
            for each in range(first, last + 1):
                before = self.known.get(each)
                assert each >= self.start and each not in hidden
                assert each >= read[0].first and each <= read[-1].last
                if before is None:
                    assert delivered == 1 and (each in self.gaps or each >= self.read_to)
                else:
                    assert (before.state, before.write) == (AVAILABLE, None)
                    assert delivered == before.count + 1 <= self.terms.delivery_count_limit
                count += 1
        if limited:
            assert count <= most
        self.followed(member, offset, read, acquired)
        new = [each for first, last, _ in acquired for each in range(first, last + 1)]
        if room <= 0 and new:
            assert max(new) < self.read_to or not self.known
        self.wrote(change, "nobody")
        return count

    def followed(self, member: str, offset: int, read: list[Batch], acquired: object) -> None:
        """Take over what is in the window now, which can be explained by what was read."""
        cells = {each: cell for cell in self.core._window.cells for each in range(cell.first, cell.last + 1)}
        hidden = self.hidden()
        taken = {each for first, last, _ in acquired for each in range(first, last + 1)}  # type: ignore[attr-defined]
        passed = range(offset, read[0].first)
        for each in range(self.start, max([self.read_to, *cells]) + 1):
            has, cell = self.known.get(each), cells.get(each)
            if each in taken:
                delivered = has.count + 1 if has is not None else 1
                self.known[each] = Known(ACQUIRED, delivered, member, self.now + LOCK_MS)
            elif has is not None and has.state is AVAILABLE and each in passed:
                self.known[each] = Known(ARCHIVED, has.count)
            elif has is not None and has.state is AVAILABLE and each in hidden:
                if cell is None or cell.state is ARCHIVED:
                    self.known[each] = Known(ARCHIVED, has.count + 1)
            elif has is None and cell is not None:
                # Part of a batch that was too much for the member, or aborted.
                assert each in self.gaps or each >= self.read_to
                state = ARCHIVED if each in hidden and cell.state is ARCHIVED else AVAILABLE
                self.known[each] = Known(state, cell.count)
        over = self.core.start_offset
        self.gaps = {
            each
            for each in self.gaps
            if each not in self.known and each not in passed and not (each in hidden and each < over)
        }
        self.read_to = max([self.read_to, *(each + 1 for each in self.known)])
        self.moved()

    def hidden(self) -> set[int]:
        """The offsets of aborted transactions."""
        return {each for _, first, end in self.aborted for each in range(first, end)}

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
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
        self.say(member, acks)

    @precondition(lambda self: self.core._window.held)
    @rule(data=st.data(), kind=st.integers(0, 4), most=st.integers(1, 6), last=st.booleans())
    def acknowledge_held(self, data: st.DataObject, kind: int, most: int, last: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.core._window.held)))
        held = held_by(self.known, member)
        some = held[-most:] if last else held[:most]
        self.say(member, [Acknowledged(each, each, (kind,)) for each in some])

    @precondition(lambda self: self.core._window.held)
    @rule(data=st.data(), kind=st.integers(0, 4), most=st.integers(1, 6), member=st.sampled_from(MEMBERS))
    def acknowledge_what_somebody_has(self, data: st.DataObject, kind: int, most: int, member: str) -> None:
        """Mostly somebody else, who is refused."""
        holder = data.draw(st.sampled_from(sorted(self.core._window.held)))
        held = held_by(self.known, holder)
        self.say(member, [Acknowledged(each, each, (kind,)) for each in held[:most]])

    @rule(
        member=st.sampled_from(MEMBERS),
        times=st.integers(1, 4),
        kind=st.sampled_from((RELEASE, RELEASE, ACCEPT)),
    )
    def come_again(self, member: str, times: int, kind: int) -> None:
        """Records go round until they are at their limit, which single steps seldom bring about."""
        for _ in range(times):
            self.take_from_log(member, 8, 4, 6, False)
            held = held_by(self.known, member)
            self.say(member, [Acknowledged(each, each, (kind,)) for each in held])
            while self.writes:
                self.answer(False)

    @rule(one=st.sampled_from(MEMBERS), other=st.sampled_from(MEMBERS), answers=st.booleans())
    def take_beside_what_is_being_written(self, one: str, other: str, answers: bool) -> None:
        """What is free lies before what is about to be: who takes the first must not have the second."""
        self.take_from_log(one, 8, 4, 6, False)
        held = held_by(self.known, one)
        if len(held) < 2:
            return
        self.say(one, [Acknowledged(held[0], held[0], (RELEASE,))])
        while answers and self.writes:
            self.answer(False)
        self.say(one, [Acknowledged(each, each, (RELEASE,)) for each in held[1:]])
        self.take_from_log(other, 8, 4, 6, False)

    @rule(
        member=st.sampled_from(MEMBERS), kind=st.sampled_from((ACCEPT, RELEASE, REJECT)), fails=st.booleans()
    )
    def outlive_a_lock(self, member: str, kind: int, fails: bool) -> None:
        """A lock ends while what its holder said is being written, which may fail."""
        self.take_from_log(member, 8, 4, 6, False)
        held = held_by(self.known, member)
        self.say(member, [Acknowledged(each, each, (kind,)) for each in held])
        self.pass_time(LOCK_MS + 1)
        for _ in range(len(self.writes)):
            self.answer(fails)

    def say(self, member: str, acks: list[Acknowledged]) -> None:
        expected, renewed, refused = judged(self.known, self.start, self.terms, member, acks)
        try:
            change = self.core.acknowledge(member, acks, self.now)
        except DeliveryError as error:
            assert refused, (error, acks)
            assert error.error in (Errors.INVALID_RECORD_STATE, Errors.INVALID_REQUEST)
            return
        assert not refused, acks
        assert change is not None or not expected
        if change is not None and not expected:  # The start alone has to be written, for it has passed these.
            assert not change.batches and min(ack.first_offset for ack in acks) < self.start
        for each in renewed:
            if each not in expected:
                self.known[each] = self.known[each]._replace(lock_end=self.now + LOCK_MS)
        for each, state in expected.items():
            has = self.known[each]
            self.known[each] = Known(state, has.count, "", has.lock_end, change)
        self.wrote(change, member)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        """SH12: all that a member has is released at once."""
        change = self.core.release(member)
        held = [each for each, has in self.known.items() if has.member == member]
        assert (change is None) == (not held)
        for each in held:
            has = self.known[each]
            self.known[each] = Known(
                after(self.terms, RELEASE, has.count), has.count, "", has.lock_end, change
            )
        self.wrote(change, member)

    @rule(ms=st.sampled_from((1, 10, 60, 150)))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        change = self.core.expire(self.now)
        for each, has in self.known.items():
            if has.lock_end < 0 or has.lock_end > self.now:
                continue
            if has.write is not None:
                self.known[each] = has._replace(lapsed=True, lock_end=-1)
            else:
                self.known[each] = Known(after(self.terms, RELEASE, has.count), has.count)
        self.wrote(change, "nobody")

    # --- writing ---

    def wrote(self, change: Change | None, member: str) -> None:
        if change is None:
            return
        each = [offset for b in change.batches for offset in range(b.first_offset, b.last_offset + 1)]
        assert len(each) == len(set(each)), "nothing is written twice"
        assert change.start_offset >= self.durable_start, "the start never moves back"
        if self.writes:
            assert change.start_offset >= self.writes[-1][0].start_offset
        self.writes.append((change, member))

    @precondition(lambda self: self.writes)
    @rule(fails=st.booleans())
    def answer(self, fails: bool) -> None:
        change, _ = self.writes.pop(0)
        if not fails:
            self.keep(change)
        follow = self.core.finished(change, Errors.COORDINATOR_NOT_AVAILABLE if fails else Errors.NONE)
        if not fails:
            self.letters += change.dead_letters
        for each, has in self.known.items():
            if has.write is not change:
                continue
            if not fails:
                self.known[each] = Known(has.state, has.count)
                if has.state in DONE:
                    self.promised[each] = has.state
            elif has.lapsed:
                self.known[each] = Known(after(self.terms, RELEASE, has.count), has.count)
            else:
                self.known[each] = Known(ACQUIRED, has.count, change.ticket.member_id, has.lock_end)
        self.moved()
        if follow is not None and follow.start_offset < 0:
            assert not follow.batches and follow.dead_letters
            self.letters += follow.dead_letters
            assert self.core.finished(follow, Errors.NONE) is None
        else:
            self.wrote(follow, "nobody")

    def keep(self, change: Change) -> None:
        self.durable_start = max(self.durable_start, change.start_offset)
        self.durable = combine(self.durable, change.batches, self.durable_start)

    def moved(self) -> None:
        """SH4: the start moves over what is done, never back; only the model of it may lag behind."""
        start = self.core.start_offset
        assert start >= self.start
        for each in range(self.start, start):
            has = self.known.pop(each, None)
            assert has is None or (has.state in DONE and has.write is None), (each, has)
            assert each not in self.gaps
            self.promised.pop(each, None)
        self.start = start
        self.read_to = max(self.read_to, start)

    @precondition(lambda self: self.letters)
    @rule()
    def copy(self) -> None:
        letter = self.letters.pop(0)
        change = self.core.archived(letter)
        for each in range(letter.first_offset, letter.last_offset + 1):
            has = self.known.get(each)
            if has is not None and has.state is ARCHIVING:
                self.known[each] = Known(ARCHIVED, has.count)
        self.wrote(change, "nobody")

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """SH6: what was answered is kept; of what was being written any first part may be."""
        for change, _ in self.writes[: data.draw(st.integers(0, len(self.writes)))]:
            self.keep(change)
        self.writes, self.letters = [], []
        self.core = SharePartition(KEY, self.terms)
        answer = StateAnswer(start_offset=self.durable_start, batches=self.durable)
        self.core.load(answer, 0, self.durable_start)
        self.letters = list(self.core.dead_letters)
        self.start, self.known, self.gaps = self.durable_start, {}, set()
        for first, last, state, count in self.durable:
            for each in range(first, last + 1):
                self.known[each] = Known(RecordState(state), count)
        self.read_to = max(self.known, default=self.start - 1) + 1
        self.gaps = {each for each in range(self.start, self.read_to) if each not in self.known}
        for each, state in self.promised.items():
            assert each < self.start or self.known[each].state is state, f"{each} was {state} for good"
        self.moved()
        if self.log_start > self.start:
            change = self.core.log_start_moved(self.log_start)
            self.start = self.log_start
            self.read_to = max(self.read_to, self.start)
            self.known = {each: has for each, has in self.known.items() if each >= self.start}
            self.gaps = {each for each in self.gaps if each >= self.start}
            self.moved()
            self.wrote(change, "nobody")

    # --- what always holds ---

    @invariant()
    def each_offset_is_where_the_model_has_it(self) -> None:
        """SH1, SH2, SH3: one state, one holder with one lock, a count within the limit."""
        window = self.core._window
        found = {
            each: (cell.state, cell.count, cell.member_id, cell.change is not None)
            for cell in window.cells
            for each in range(cell.first, cell.last + 1)
        }
        expected = {
            each: (has.state, has.count, has.member, has.write is not None)
            for each, has in self.known.items()
        }
        assert found == expected
        assert sum(cell.last - cell.first + 1 for cell in window.cells) == len(found)
        for state, _, member, _ in found.values():
            assert (state is ACQUIRED) == bool(member)
        held = [has for has in self.known.values() if has.state is ACQUIRED]
        assert sum(window.held.values()) == len(held)
        locks = [has.lock_end for has in self.known.values() if has.lock_end >= 0]
        assert self.core.lock_end_ms == min(locks, default=None)

    @invariant()
    def sums_are_right(self) -> None:
        window = self.core._window
        states = [(has.state, has.write) for has in self.known.values()]
        assert window.complete == sum(state in DONE for state, _ in states)
        assert window.free == sum(has == (AVAILABLE, None) for has in states)
        assert {each for first, last in window.gaps for each in range(first, last + 1)} == self.gaps

    @invariant()
    def the_next_offset_is_the_first_one_for_somebody(self) -> None:
        """L6: what can be acquired is where the log is read next."""
        free = [each for each, has in self.known.items() if (has.state, has.write) == (AVAILABLE, None)]
        wanted = min([*free, *self.gaps], default=self.core._window.frontier)
        assert self.core.next_fetch_offset == wanted
        assert self.core.start_offset == self.start
        assert self.core.end_offset >= self.core.start_offset
        if free or self.gaps:
            assert self.core.can_acquire

    def teardown(self) -> None:
        """SH7: when all is well again, everything is delivered and the window is empty."""
        for _ in range(400):
            while self.writes:
                self.answer(False)
            while self.letters:
                self.copy()
                while self.writes:
                    self.answer(False)
            if self.take_from_log("z", 8, 4, 500, False):
                held = held_by(self.known, "z")
                self.say("z", [Acknowledged(each, each, (ACCEPT,)) for each in held])
                continue
            if self.writes:
                continue
            rest = [batch for batch in self.log if batch.last >= self.core.next_fetch_offset]
            if self.core.can_acquire and rest:
                continue
            if any(has.member for has in self.known.values()):
                for member in MEMBERS:
                    self.leave(member)
                continue
            break
        else:
            raise AssertionError(f"never done: {self.core}")
        left = [each for each in self.known if any(b.first <= each <= b.last for b in self.log)]
        done = [each for each in left if self.known[each].state in DONE]
        assert left == done, f"not delivered: {self.core} of {self.log}"


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(
    max_examples=int(os.environ.get("KONVENE_DELIVERY_EXAMPLES", depth.examples(120))),
    stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
