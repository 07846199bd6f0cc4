"""The request scheduler runs few requests per iteration of the loop, in order, and all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from konvene.broker.net.request_scheduler import BATCH, MIN_COUNTED, RequestScheduler


class Loop:
    """Stub event loop: callbacks for the next iteration."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run_once(self) -> None:
        """Run the callbacks of one iteration."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()


class Client:
    """Sends requests, and records in `seen` those that have run."""

    def __init__(self, scheduler: RequestScheduler, seen: list[bytes]) -> None:
        self.scheduler, self.seen = scheduler, seen

    def send(self, frame: bytes) -> None:
        if self.scheduler.admit(self, frame):
            self.seen.append(frame)

    def decide(self, frame: bytes) -> None:
        self.seen.append(frame)


def make_scheduler() -> tuple[Any, RequestScheduler, list[bytes]]:
    loop: Any = Loop()
    return loop, RequestScheduler(loop), []


def frames(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_many_requests_run_in_batches_and_in_order() -> None:
    """Responses are sent between two iterations."""
    loop, scheduler, seen = make_scheduler()
    sent = frames(4 * BATCH + 3)
    for frame in sent:
        Client(scheduler, seen).send(frame)
    counts = [len(seen)]
    while loop.soon:
        loop.run_once()
        counts.append(len(seen))
    assert counts == [BATCH * n for n in (1, 2, 3, 4)] + [4 * BATCH + 3]
    assert seen == sent
    assert len(scheduler) == 0


def test_later_request_is_queued_behind_earlier_ones() -> None:
    """Even if few arrive in its iteration."""
    loop, scheduler, seen = make_scheduler()
    sent = frames(3 * BATCH)
    for frame in sent:
        Client(scheduler, seen).send(frame)
    loop.run_once()
    Client(scheduler, seen).send(b"late")
    assert b"late" not in seen
    while loop.soon:
        loop.run_once()
    assert seen == [*sent, b"late"]


def test_single_request_runs_at_once() -> None:
    """And schedules no callback."""
    loop, scheduler, seen = make_scheduler()
    for frame in frames(MIN_COUNTED - 1):
        Client(scheduler, seen).send(frame)
    assert (len(seen), len(loop.soon)) == (MIN_COUNTED - 1, 0)


def test_queued_request_of_a_closed_connection_runs() -> None:
    """The last request of a client is often to leave its group."""
    _, scheduler, seen = make_scheduler()
    clients = [Client(scheduler, seen) for _ in range(BATCH + 2)]
    for client, frame in zip(clients, frames(BATCH + 2), strict=True):
        client.send(frame)
    scheduler.run_now(clients[-1])
    scheduler.run_now(clients[0])
    assert seen[BATCH:] == [b"%d" % (BATCH + 1)]
    scheduler.close()
    assert (len(seen), len(scheduler)) == (BATCH + 2, 0)


def test_each_request_runs_eventually() -> None:
    """Random numbers of requests and iterations."""
    for seed in range(50):
        random = Random(seed)
        loop, scheduler, seen = make_scheduler()
        sent = 0
        for _ in range(30):
            for _ in range(random.choice((1, 3, BATCH // 2, BATCH, 2 * BATCH))):
                Client(scheduler, seen).send(b"%d" % sent)
                sent += 1
            for _ in range(random.randint(0, 3)):
                loop.run_once()
        while loop.soon:
            before = len(seen)
            loop.run_once()
            assert len(seen) - before <= BATCH
        assert seen == frames(sent)
