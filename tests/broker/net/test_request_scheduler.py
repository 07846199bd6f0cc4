"""Whose request is decided in which turn of the loop: few at a time, in their order, and nobody forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from konvene.broker.net.request_scheduler import BATCH, MIN_COUNTED, RequestScheduler


class Loop:
    """What is to be done in the next turn."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        """One turn: what was there when it began."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()


class Client:
    """Asks, and notes in `seen` what was decided."""

    def __init__(self, turns: RequestScheduler, seen: list[bytes]) -> None:
        self.turns, self.seen = turns, seen

    def ask(self, frame: bytes) -> None:
        if self.turns.admit(self, frame):
            self.seen.append(frame)

    def decide(self, frame: bytes) -> None:
        self.seen.append(frame)


def a_room() -> tuple[Any, RequestScheduler, list[bytes]]:
    loop: Any = Loop()
    return loop, RequestScheduler(loop), []


def frames(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_crowd_is_answered_some_at_a_time_in_its_order() -> None:
    """What is answered leaves between two turns."""
    loop, turns, seen = a_room()
    asked = frames(4 * BATCH + 3)
    for frame in asked:
        Client(turns, seen).ask(frame)
    found = [len(seen)]
    while loop.soon:
        loop.turn()
        found.append(len(seen))
    assert found == [BATCH * n for n in (1, 2, 3, 4)] + [4 * BATCH + 3]
    assert seen == asked
    assert len(turns) == 0


def test_who_comes_while_others_wait_waits_behind_them() -> None:
    """However few come in a turn."""
    loop, turns, seen = a_room()
    asked = frames(3 * BATCH)
    for frame in asked:
        Client(turns, seen).ask(frame)
    loop.turn()
    Client(turns, seen).ask(b"late")
    assert b"late" not in seen
    while loop.soon:
        loop.turn()
    assert seen == [*asked, b"late"]


def test_few_requests_are_no_matter() -> None:
    """Nothing is looked at again for one request, and each is decided at once."""
    loop, turns, seen = a_room()
    for frame in frames(MIN_COUNTED - 1):
        Client(turns, seen).ask(frame)
    assert (len(seen), len(loop.soon)) == (MIN_COUNTED - 1, 0)


def test_who_hangs_up_is_decided_before() -> None:
    """A farewell is often the last that is heard of a client."""
    _, turns, seen = a_room()
    clients = [Client(turns, seen) for _ in range(BATCH + 2)]
    for client, frame in zip(clients, frames(BATCH + 2), strict=True):
        client.ask(frame)
    turns.run_now(clients[-1])
    turns.run_now(clients[0])
    assert seen[BATCH:] == [b"%d" % (BATCH + 1)]
    turns.close()
    assert (len(seen), len(turns)) == (BATCH + 2, 0)


def test_nobody_waits_for_ever_whenever_they_come() -> None:
    """Any crowds, with any turns between them."""
    for seed in range(50):
        random = Random(seed)
        loop, turns, seen = a_room()
        asked = 0
        for _ in range(30):
            for _ in range(random.choice((1, 3, BATCH // 2, BATCH, 2 * BATCH))):
                Client(turns, seen).ask(b"%d" % asked)
                asked += 1
            for _ in range(random.randint(0, 3)):
                loop.turn()
        while loop.soon:
            before = len(seen)
            loop.turn()
            assert len(seen) - before <= BATCH
        assert seen == frames(asked)
