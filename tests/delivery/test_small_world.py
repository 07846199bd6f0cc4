"""All that can happen to a few records and two members, with writes that fail and crashes at each step.

Every state that can be reached is looked at once: what was promised holds, nobody has what another has, and
from each of them the group gets all of its records in the end. The time is not looked at: a lock ends when it
is said to, and then all of them do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
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

WORLDS: list[tuple[Log, int, bool]] = [
    # batches of the log, writes at the same time, dead letters
    (((0, 1), (2, 2)), 1, False),
    (((0, 1),), 2, True),
]
if os.environ.get("KONVENE_DELIVERY_WORLDS") == "all":
    WORLDS += [(((0, 1), (2, 2)), 1, True), (((0, 0), (1, 1)), 2, False), (((0, 2),), 1, True)]


class World:
    """Some records, a share partition, and what its coordinator has written."""

    def __init__(self, log: Log, most_writes: int, dead_letters: bool) -> None:
        self.log = log
        self.end = log[-1][1] + 1
        self.most_writes = most_writes
        self.terms = Terms(lock_ms=LOCK_MS, delivery_count_limit=LIMIT, dead_letters=dead_letters)
        self.now_ms = 0
        self.durable: tuple[int, tuple[StateBatch, ...]] = (0, ())
        self.promised: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.start_was = 0
        self.restart(0)

    # --- what can happen ---

    def actions(self) -> Iterator[Action]:
        busy = len(self.writes) >= self.most_writes
        for member in MEMBERS:
            if self.core.can_acquire and self.core.next_fetch_offset < self.end:
                yield "take", member, AcquireMode.BATCH_OPTIMIZED
                yield "take", member, AcquireMode.RECORD_LIMIT
            if busy or member not in self.holders.values():
                continue
            yield "release", member
            for offset, holder in self.holders.items():
                if holder == member:
                    for said in (ACCEPT, RELEASE, REJECT):
                        yield "say", member, offset, said
        if self.core.lock_end_ms is not None and not busy:
            yield ("expire",)
        if self.letters and not busy:
            yield ("copied",)
        if self.writes:
            yield "answer", Errors.NONE
            yield "answer", Errors.COORDINATOR_NOT_AVAILABLE
        for kept in range(len(self.writes) + 1):
            yield "restart", kept

    def do(self, action: Action) -> None:
        name, *arguments = action
        getattr(self, name)(*arguments)

    def take(self, member: str, mode: AcquireMode) -> None:
        offset = self.core.next_fetch_offset
        read = [header(*batch) for batch in self.log if batch[1] >= offset]
        acquired, change = self.core.acquire(
            member, read, (), fetch_offset=offset, mode=mode, max_records=1, batch_size=1, now_ms=self.now_ms
        )
        assert change is None
        assert acquired, "there was something for this member"
        for first, last, count in acquired:
            assert count <= LIMIT
            for each in range(first, last + 1):
                assert each not in self.holders, "another member has it"
                assert each not in self.promised, "it is done"
                self.holders[each] = member

    def say(self, member: str, offset: int, said: int) -> None:
        self.write(self.core.acknowledge(member, [Acknowledged(offset, offset, (said,))], self.now_ms))
        del self.holders[offset]

    def release(self, member: str) -> None:
        self.write(self.core.release(member))
        self.holders = {each: holder for each, holder in self.holders.items() if holder != member}

    def expire(self) -> None:
        self.now_ms += LOCK_MS
        self.write(self.core.expire(self.now_ms))
        self.holders = {}

    def copied(self) -> None:
        self.write(self.core.archived(self.letters.pop(0)))

    def write(self, change: Change | None) -> None:
        if change is not None:
            assert change.start_offset >= self.durable[0]
            self.writes.append(change)

    def answer(self, error: Errors) -> None:
        change = self.writes.pop(0)
        follow = self.core.finished(change, error)
        if error:
            for cell in self.core.in_flight():
                if cell.member_id:
                    for each in range(cell.first_offset, cell.last_offset + 1):
                        assert self.holders.setdefault(each, cell.member_id) == cell.member_id
        else:
            self.keep(change)
            self.letters += change.dead_letters
            for first, last, state, _ in change.batches:
                if state in DONE:
                    self.promised.update(dict.fromkeys(range(first, last + 1), state))
        if follow is not None and follow.start_offset < 0:
            self.letters += follow.dead_letters
            self.core.finished(follow, Errors.NONE)
        else:
            self.write(follow)

    def keep(self, change: Change) -> None:
        start = max(self.durable[0], change.start_offset)
        self.durable = start, combine(self.durable[1], change.batches, start)

    def restart(self, kept: int) -> None:
        """A crash: of what was being written, the first ones may be on the disk."""
        for change in getattr(self, "writes", [])[:kept]:
            self.keep(change)
        self.writes: list[Change] = []
        self.holders = {}
        self.core = SharePartition(KEY, self.terms)
        start, batches = self.durable
        self.core.load(StateAnswer(start_offset=start, batches=batches), 0, start)
        self.letters: list[DeadLetter] = list(self.core.dead_letters)
        self.start_was = start

    # --- what has to hold ---

    def check(self) -> None:
        core, window = self.core, self.core._window
        assert self.start_was <= core.start_offset <= self.end
        self.start_was = core.start_offset
        states = {each: cell for cell in window.cells for each in range(cell.first, cell.last + 1)}
        held = {each: cell.member_id for each, cell in states.items() if cell.state is RecordState.ACQUIRED}
        assert held == self.holders
        assert core.delivery_complete_count == sum(cell.state in DONE for cell in states.values())
        for each, state in self.promised.items():
            assert each < core.start_offset or states[each].state == state, "it was promised"
        free = [each for each, cell in states.items() if cell.state == 0 and cell.change is None]
        gaps = [each for first, last in window.gaps for each in range(first, last + 1)]
        assert core.next_fetch_offset == min(free + gaps, default=window.frontier)
        assert (core.lock_end_ms is not None) == any(cell.lock_end_ms >= 0 for cell in states.values())
        assert all(cell.lock_end_ms >= 0 for cell in states.values() if cell.state is RecordState.ACQUIRED)

    def key(self) -> object:
        """What tells this state from others; that the members have changed places does not."""
        names = {"": ""}
        tickets = [change.ticket for change in self.writes]
        return (
            tuple(
                (
                    cell.first,
                    int(cell.state),
                    cell.count,
                    names.setdefault(cell.member_id, f"member {len(names)}"),
                    min(cell.lock_end_ms, 0),
                    -1 if cell.change is None else tickets.index(cell.change),
                    cell.batch is None,
                )
                for cell in self.core._window.cells
            ),
            self.core.start_offset,
            tuple(self.core._window.gaps),
            tuple(
                (change[:4], names.setdefault(change.ticket.member_id, f"member {len(names)}"))
                for change in self.writes
            ),
            tuple(self.letters),
            self.durable,
            tuple(sorted(self.promised.items())),
        )

    def finish(self) -> None:
        """All goes well from here on: everything is delivered, and done."""
        for _ in range(40):
            if self.writes:
                self.do(("answer", Errors.NONE))
            elif self.letters:
                self.do(("copied",))
            elif self.holders:
                self.do(("say", *reversed(next(iter(self.holders.items()))), ACCEPT))
            elif self.core.start_offset < self.end:
                self.do(("take", "b", AcquireMode.BATCH_OPTIMIZED))
            else:
                break
        self.check()
        assert (self.core.start_offset, self.core.end_offset) == (self.end, self.end), "not all was delivered"


@pytest.mark.deep
@pytest.mark.parametrize("log, most_writes, dead_letters", WORLDS)
def test_every_state_is_sound_and_leads_to_the_end(log: Log, most_writes: int, dead_letters: bool) -> None:
    def after(path: tuple[Action, ...]) -> World:
        world = World(log, most_writes, dead_letters)
        for action in path:
            world.do(action)
        return world

    seen = {after(()).key()}
    waiting: deque[tuple[Action, ...]] = deque([()])
    while waiting:
        path = waiting.popleft()
        for action in tuple(after(path).actions()):
            world = after((*path, action))
            world.check()
            key = world.key()
            if key not in seen:
                seen.add(key)
                waiting.append((*path, action))
                world.finish()
    assert len(seen) > 1000
