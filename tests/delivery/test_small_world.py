"""Model checking of a share partition: a few records, two members, failed writes, and crashes at each step.

Each reachable state is checked once: confirmed acknowledgements hold, no record has two owners, and all
records can still be delivered. Time is abstracted: one action expires all locks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from tests import depth
from tests.delivery.playing import KEY, header

from konvene.delivery.contract import Acknowledged, AcquireMode, Change, DeadLetter, RecordState, Terms
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.share_state.combine import combine
from konvene.share_state.requests import StateAnswer, StateBatch

ACCEPT, RELEASE, REJECT = 1, 2, 3
MEMBERS = "ab"
LIMIT = 2
DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
LOCK_MS = 10

Action = tuple[Any, ...]
Log = tuple[tuple[int, int], ...]

CONFIGURATIONS: list[tuple[Log, int, bool]] = [
    # batches of the log, writes at the same time, dead letters
    (((0, 1), (2, 2)), 1, False),
    (((0, 1),), 2, True),
]
if depth.soak:
    CONFIGURATIONS += [(((0, 1), (2, 2)), 1, True), (((0, 0), (1, 1)), 2, False), (((0, 2),), 1, True)]


class World:
    """A log, a share partition, and its persisted state."""

    def __init__(self, log: Log, most_writes: int, dead_letters: bool) -> None:
        self.log = log
        self.end = log[-1][1] + 1
        self.most_writes = most_writes
        self.terms = Terms(lock_ms=LOCK_MS, delivery_count_limit=LIMIT, dead_letters=dead_letters)
        self.now_ms = 0
        self.durable: tuple[int, tuple[StateBatch, ...]] = (0, ())
        self.acknowledged: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.previous_start = 0
        self.restart(0)

    # --- actions ---

    def actions(self) -> Iterator[Action]:
        busy = len(self.writes) >= self.most_writes
        for member in MEMBERS:
            if self.core.can_acquire and self.core.next_fetch_offset < self.end:
                yield "acquire", member, AcquireMode.BATCH_OPTIMIZED
                yield "acquire", member, AcquireMode.RECORD_LIMIT
            if busy or member not in self.holders.values():
                continue
            yield "release", member
            for offset, holder in self.holders.items():
                if holder == member:
                    for kind in (ACCEPT, RELEASE, REJECT):
                        yield "acknowledge", member, offset, kind
        if self.core.lock_end_ms is not None and not busy:
            yield ("expire",)
        if self.dead_letters and not busy:
            yield ("complete_copy",)
        if self.writes:
            yield "complete_write", Errors.NONE
            yield "complete_write", Errors.COORDINATOR_NOT_AVAILABLE
        for kept in range(len(self.writes) + 1):
            yield "restart", kept

    def perform(self, action: Action) -> None:
        name, *arguments = action
        getattr(self, name)(*arguments)

    def acquire(self, member: str, mode: AcquireMode) -> None:
        offset = self.core.next_fetch_offset
        read = [header(*batch) for batch in self.log if batch[1] >= offset]
        acquired, change = self.core.acquire(
            member, read, (), fetch_offset=offset, mode=mode, max_records=1, batch_size=1, now_ms=self.now_ms
        )
        assert change is None
        assert acquired, "a record was available for this member"
        for first, last, count in acquired:
            assert count <= LIMIT
            for offset in range(first, last + 1):
                assert offset not in self.holders, "another member owns the record"
                assert offset not in self.acknowledged, "the record is completed"
                self.holders[offset] = member

    def acknowledge(self, member: str, offset: int, kind: int) -> None:
        self.write(self.core.acknowledge(member, [Acknowledged(offset, offset, (kind,))], self.now_ms))
        del self.holders[offset]

    def release(self, member: str) -> None:
        self.write(self.core.release(member))
        self.holders = {offset: holder for offset, holder in self.holders.items() if holder != member}

    def expire(self) -> None:
        self.now_ms += LOCK_MS
        self.write(self.core.expire(self.now_ms))
        self.holders = {}

    def complete_copy(self) -> None:
        self.write(self.core.archived(self.dead_letters.pop(0)))

    def write(self, change: Change | None) -> None:
        if change is not None:
            assert change.start_offset >= self.durable[0]
            self.writes.append(change)

    def complete_write(self, error: Errors) -> None:
        change = self.writes.pop(0)
        follow = self.core.finished(change, error)
        if error:
            for cell in self.core.in_flight():
                if cell.member_id:
                    for offset in range(cell.first_offset, cell.last_offset + 1):
                        assert self.holders.setdefault(offset, cell.member_id) == cell.member_id
        else:
            self.persist(change)
            self.dead_letters += change.dead_letters
            for first, last, state, _ in change.batches:
                if state in DONE:
                    self.acknowledged.update(dict.fromkeys(range(first, last + 1), state))
        if follow is not None and follow.start_offset < 0:
            self.dead_letters += follow.dead_letters
            self.core.finished(follow, Errors.NONE)
        else:
            self.write(follow)

    def persist(self, change: Change) -> None:
        start = max(self.durable[0], change.start_offset)
        self.durable = start, combine(self.durable[1], change.batches, start)

    def restart(self, kept: int) -> None:
        """Crash and restart with the first `kept` of the pending writes persisted."""
        for change in getattr(self, "writes", [])[:kept]:
            self.persist(change)
        self.writes: list[Change] = []
        self.holders = {}
        self.core = SharePartition(KEY, self.terms)
        start, batches = self.durable
        self.core.load(StateAnswer(start_offset=start, batches=batches), 0, start)
        self.dead_letters: list[DeadLetter] = list(self.core.dead_letters)
        self.previous_start = start

    # --- invariants ---

    def check(self) -> None:
        core, window = self.core, self.core._window
        assert self.previous_start <= core.start_offset <= self.end
        self.previous_start = core.start_offset
        states = {offset: cell for cell in window.cells for offset in range(cell.first, cell.last + 1)}
        held = {
            offset: cell.member_id for offset, cell in states.items() if cell.state is RecordState.ACQUIRED
        }
        assert held == self.holders
        assert core.delivery_complete_count == sum(cell.state in DONE for cell in states.values())
        for offset, state in self.acknowledged.items():
            assert offset < core.start_offset or states[offset].state == state, (
                "the acknowledgement was confirmed"
            )
        available = [offset for offset, cell in states.items() if cell.state == 0 and cell.change is None]
        gaps = [offset for first, last in window.gaps for offset in range(first, last + 1)]
        assert core.next_fetch_offset == min(available + gaps, default=window.frontier)
        assert (core.lock_end_ms is not None) == any(cell.lock_end_ms >= 0 for cell in states.values())
        assert all(cell.lock_end_ms >= 0 for cell in states.values() if cell.state is RecordState.ACQUIRED)

    def fingerprint(self) -> object:
        """Return a hashable form of the state, equal for states that differ only in the names of members."""
        member_names = {"": ""}
        tickets = [change.ticket for change in self.writes]
        return (
            tuple(
                (
                    cell.first,
                    int(cell.state),
                    cell.count,
                    member_names.setdefault(cell.member_id, f"member {len(member_names)}"),
                    min(cell.lock_end_ms, 0),
                    -1 if cell.change is None else tickets.index(cell.change),
                    cell.batch is None,
                )
                for cell in self.core._window.cells
            ),
            self.core.start_offset,
            tuple(self.core._window.gaps),
            tuple(
                (change[:4], member_names.setdefault(change.ticket.member_id, f"member {len(member_names)}"))
                for change in self.writes
            ),
            tuple(self.dead_letters),
            self.durable,
            tuple(sorted(self.acknowledged.items())),
        )

    def deliver_all(self) -> None:
        """Deliver and accept all records without further faults."""
        for _ in range(40):
            if self.writes:
                self.perform(("complete_write", Errors.NONE))
            elif self.dead_letters:
                self.perform(("complete_copy",))
            elif self.holders:
                self.perform(("acknowledge", *reversed(next(iter(self.holders.items()))), ACCEPT))
            elif self.core.start_offset < self.end:
                self.perform(("acquire", "b", AcquireMode.BATCH_OPTIMIZED))
            else:
                break
        self.check()
        assert (self.core.start_offset, self.core.end_offset) == (self.end, self.end), "not all was delivered"


@pytest.mark.deep
@pytest.mark.parametrize("log, most_writes, dead_letters", CONFIGURATIONS)
def test_every_state_satisfies_the_invariants_and_can_complete(
    log: Log, most_writes: int, dead_letters: bool
) -> None:
    def after(path: tuple[Action, ...]) -> World:
        world = World(log, most_writes, dead_letters)
        for action in path:
            world.perform(action)
        return world

    seen = {after(()).fingerprint()}
    waiting: deque[tuple[Action, ...]] = deque([()])
    while waiting:
        path = waiting.popleft()
        for action in tuple(after(path).actions()):
            world = after((*path, action))
            world.check()
            fingerprint = world.fingerprint()
            if fingerprint not in seen:
                seen.add(fingerprint)
                waiting.append((*path, action))
                world.deliver_all()
    assert len(seen) > 1000
