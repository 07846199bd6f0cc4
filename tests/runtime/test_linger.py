"""What may wait is synced with what comes a moment later; who is in a hurry, or alone, waits for nobody."""

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
IN_A_HURRY = PATIENT._replace(client_id="in a hurry")


class Shard(GroupShard):
    """What a patient client is told may wait."""

    def handle(self, request: Struct, context: Context) -> Outcome:
        return super().handle(request, context)._replace(may_wait=context.client_id == "patient")


class Alarms:
    """The event loop, but that time passes when the test says so."""

    def __init__(self) -> None:
        self.armed: list[Alarm] = []
        self.create_task = asyncio.get_running_loop().create_task

    def time(self) -> float:
        return 100.0

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> Alarm:
        self.armed.append(Alarm(self, when, callback, args))
        return self.armed[-1]

    @property
    def lingering(self) -> list[Alarm]:
        return [alarm for alarm in self.armed if alarm.when == self.time() + LINGER_S]


class Alarm:
    def __init__(self, alarms: Alarms, when: float, callback: Callable[..., None], args: Any) -> None:
        self._alarms = alarms
        self.when = when
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        if self in self._alarms.armed:
            self._alarms.armed.remove(self)

    def ring(self) -> None:
        self.cancel()
        self._callback(*self._args)


def run(test: Callable[[Journal, Coordinator, Alarms], Awaitable[None]]) -> None:
    async def main() -> None:
        journal, alarms = Journal(), Alarms()
        coordinator = Coordinator(
            "test-0",
            Shard,
            GROUP_SERDE,
            Ports(
                journal=journal,
                config=lambda: CONFIG,
                loop=alarms,
                wall_clock_ms=lambda: 1000,
                topics=lambda: TOPICS,
            ),
        )
        await coordinator.load()
        await test(journal, coordinator, alarms)
        await coordinator.close()

    asyncio.run(main())


async def lingers(journal: Journal, coordinator: Coordinator) -> Any:
    """One asks, another one during the sync; the first is answered, the second waits for more."""
    first = coordinator.submit(commit(), PATIENT)
    await asyncio.sleep(0)
    second = coordinator.submit(commit(), PATIENT)
    await journal.finish_sync()
    assert (first.done, second.done) == (True, False)
    return second


def test_who_asks_alone_waits_for_the_disk_alone() -> None:
    """Also who may wait: a sync begins at once where none is under way."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        for _ in range(3):
            answer = coordinator.submit(commit(), PATIENT)
            await asyncio.sleep(0)
            assert len(journal.syncs) == 1
            assert not answer.done
            await journal.finish_sync()
            assert isinstance(answer.value, OffsetCommitResponse)
            assert alarms.lingering == []

    run(body)


def test_what_may_wait_is_synced_together() -> None:
    """What came during a sync waits for what comes a moment later; nobody is told before it is durable."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        answers = [await lingers(journal, coordinator)]
        answers += [coordinator.submit(commit(), PATIENT) for _ in range(20)]
        await asyncio.sleep(0)
        assert journal.syncs == []
        (alarm,) = alarms.lingering
        alarm.ring()
        await asyncio.sleep(0)
        assert len(journal.syncs) == 1
        assert not any(answer.done for answer in answers)
        await journal.finish_sync()
        assert all(isinstance(answer.value, OffsetCommitResponse) for answer in answers)
        assert (journal.syncs, alarms.lingering) == ([], [])

    run(body)


def test_who_is_in_a_hurry_lets_nobody_linger() -> None:
    """The sync begins when it comes, and serves those as well who came before it."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        waits = await lingers(journal, coordinator)
        hurries = coordinator.submit(commit(), IN_A_HURRY)
        await asyncio.sleep(0)
        assert (len(journal.syncs), alarms.lingering) == (1, [])
        assert not waits.done
        await journal.finish_sync()
        assert waits.done
        assert hurries.done

    run(body)


def test_nobody_lingers_where_one_of_those_who_wait_is_in_a_hurry() -> None:
    """Among patient ones that came during the same sync."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        coordinator.submit(commit(), PATIENT)
        await asyncio.sleep(0)
        answers = [coordinator.submit(commit(), call) for call in (PATIENT, IN_A_HURRY, PATIENT)]
        await journal.finish_sync()
        assert (len(journal.syncs), alarms.lingering) == (1, [])
        await journal.finish_sync()
        assert all(answer.done for answer in answers)

    run(body)


def test_what_lingers_is_made_durable_before_the_coordinator_closes() -> None:
    """Also what came while it was made so."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        first = await lingers(journal, coordinator)
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
        assert alarms.lingering == []

    run(body)


def test_who_lingers_when_an_append_fails_is_told() -> None:
    """And no sync begins for what is gone."""

    async def body(journal: Journal, coordinator: Coordinator, alarms: Alarms) -> None:
        waits = await lingers(journal, coordinator)
        journal.fail_append = OSError("no space left on device")
        lost = coordinator.submit(commit(), PATIENT)
        assert waits.value is lost.value is Errors.NOT_COORDINATOR
        assert alarms.lingering == []
        journal.fail_append = None

    run(body)
