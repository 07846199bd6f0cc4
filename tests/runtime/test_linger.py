"""Lingering: requests that may wait share a later sync; an urgent or a lone request is synced at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.runtime.test_coordinator import CONFIG, TOPICS, Journal, commit

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.messages.offset_commit import OffsetCommitResponse
from konvene.runtime.coordinator import LINGER_S, Coordinator, RequestContext
from konvene.runtime.ports import Ports
from konvene.shard.contract import Context, Outcome

PATIENT = RequestContext(api_version=9, client_id="patient", client_host="/127.0.0.1")
URGENT = PATIENT._replace(client_id="urgent")


class Shard(GroupShard):
    """Shard whose outcomes for the patient client have `may_wait` set."""

    def handle(self, request: Struct, context: Context) -> Outcome:
        return super().handle(request, context)._replace(may_wait=context.client_id == "patient")


class FakeLoop:
    """Event loop whose clock stands still and whose timers fire when the test calls `Timer.fire`."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.create_task = asyncio.get_running_loop().create_task

    def time(self) -> float:
        return 100.0

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(self, when, callback, args))
        return self.timers[-1]

    @property
    def lingering(self) -> list[Timer]:
        return [timer for timer in self.timers if timer.when == self.time() + LINGER_S]


class Timer:
    def __init__(self, loop: FakeLoop, when: float, callback: Callable[..., None], args: Any) -> None:
        self._loop = loop
        self.when = when
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        if self in self._loop.timers:
            self._loop.timers.remove(self)

    def fire(self) -> None:
        self.cancel()
        self._callback(*self._args)


def run(test: Callable[[Journal, Coordinator, FakeLoop], Awaitable[None]]) -> None:
    async def main() -> None:
        journal, loop = Journal(), FakeLoop()
        coordinator = Coordinator(
            "test-0",
            Shard,
            GROUP_SERDE,
            Ports(
                journal=journal,
                config=lambda: CONFIG,
                loop=loop,
                wall_clock_ms=lambda: 1000,
                topics=lambda: TOPICS,
            ),
        )
        await coordinator.load()
        await test(journal, coordinator, loop)
        await coordinator.close()

    asyncio.run(main())


async def submit_lingering(journal: Journal, coordinator: Coordinator) -> Any:
    """Submit a request that is synced at once and one that lingers; return the lingering one."""
    first = coordinator.submit(commit(), PATIENT)
    await asyncio.sleep(0)
    second = coordinator.submit(commit(), PATIENT)
    await journal.finish_sync()
    assert (first.done, second.done) == (True, False)
    return second


def test_a_lone_request_does_not_linger() -> None:
    """Even a request that may wait is synced at once if no sync is in progress."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        for _ in range(3):
            answer = coordinator.submit(commit(), PATIENT)
            await asyncio.sleep(0)
            assert len(journal.syncs) == 1
            assert not answer.done
            await journal.finish_sync()
            assert isinstance(answer.value, OffsetCommitResponse)
            assert loop.lingering == []

    run(body)


def test_lingering_requests_share_one_sync() -> None:
    """Requests received during a sync linger for later ones; none completes before it is durable."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        answers = [await submit_lingering(journal, coordinator)]
        answers += [coordinator.submit(commit(), PATIENT) for _ in range(20)]
        await asyncio.sleep(0)
        assert journal.syncs == []
        (timer,) = loop.lingering
        timer.fire()
        await asyncio.sleep(0)
        assert len(journal.syncs) == 1
        assert not any(answer.done for answer in answers)
        await journal.finish_sync()
        assert all(isinstance(answer.value, OffsetCommitResponse) for answer in answers)
        assert (journal.syncs, loop.lingering) == ([], [])

    run(body)


def test_an_urgent_request_ends_the_linger() -> None:
    """It starts the sync at once, which completes the lingering requests too."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        lingering = await submit_lingering(journal, coordinator)
        urgent = coordinator.submit(commit(), URGENT)
        await asyncio.sleep(0)
        assert (len(journal.syncs), loop.lingering) == (1, [])
        assert not lingering.done
        await journal.finish_sync()
        assert lingering.done
        assert urgent.done

    run(body)


def test_requests_do_not_linger_if_one_of_them_is_urgent() -> None:
    """One urgent request among patient ones received during the same sync starts the next sync at once."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        coordinator.submit(commit(), PATIENT)
        await asyncio.sleep(0)
        answers = [coordinator.submit(commit(), call) for call in (PATIENT, URGENT, PATIENT)]
        await journal.finish_sync()
        assert (len(journal.syncs), loop.lingering) == (1, [])
        await journal.finish_sync()
        assert all(answer.done for answer in answers)

    run(body)


def test_lingering_requests_are_synced_before_the_coordinator_closes() -> None:
    """Requests received during that sync are synced too."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        first = await submit_lingering(journal, coordinator)
        closing = asyncio.ensure_future(coordinator.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(journal.syncs) == 1
        second = coordinator.submit(commit(), PATIENT)
        await journal.finish_sync()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (first.done, second.done) == (True, False)
        await journal.finish_sync()
        await closing
        assert isinstance(first.value, OffsetCommitResponse)
        assert isinstance(second.value, OffsetCommitResponse)
        assert journal.synced_offset == journal.end_offset == 3
        assert loop.lingering == []

    run(body)


def test_lingering_requests_fail_when_an_append_fails() -> None:
    """The linger timer is cancelled, so no sync begins for the lost records."""

    async def body(journal: Journal, coordinator: Coordinator, loop: FakeLoop) -> None:
        lingering = await submit_lingering(journal, coordinator)
        journal.fail_append = OSError("no space left on device")
        lost = coordinator.submit(commit(), PATIENT)
        assert lingering.value is lost.value is Errors.NOT_COORDINATOR
        assert loop.lingering == []
        journal.fail_append = None

    run(body)
