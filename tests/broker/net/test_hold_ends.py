"""Held heartbeats when a connection, a coordinator, the broker or the policy ends, and in large groups."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from tests.broker.net.holds import alter, deadline, hold_left, join_and_hold, responsive
from tests.broker.net.raw_connections import HEARTBEAT, Direct, Line, joining, staying, until

from konvene.broker.broker import Broker
from konvene.broker.net.heartbeat_purgatory import BATCH
from konvene.errors import Errors
from konvene.messages.metadata import MetadataRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

METADATA, OFFSET_COMMIT = 3, 8
OFFSET = OffsetCommitRequestTopic(
    name="orders", partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
)


# --- lost connections, stopping coordinators and brokers ---


def test_lost_connection_drops_its_heartbeat(tmp_path: Path) -> None:
    """Nothing is sent or kept, and the member stays in the group."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            a.writer.transport.abort()
            await until(lambda: not broker.network.connections)
            assert (len(broker.heartbeat_purgatory), len(broker.heartbeat_purgatory.ends)) == (0, 0)
            again = await Line.to(broker)
            assert (await again.beat(staying("a", epoch))).error_code == 0

    asyncio.run(main())


CLIENT = """
import asyncio
from types import SimpleNamespace
from tests.broker.net.raw_connections import Direct, HEARTBEAT, Line, joining, staying

async def main():
    line = await Line.to(SimpleNamespace(catalogue=SimpleNamespace(advertised=("127.0.0.1", {port}))))
    response = await line.beat(joining("a", "orders"))
    await line.beat(staying("a", response.member_epoch))
    line.send(HEARTBEAT, 1, staying("a", response.member_epoch))
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_killed_client_expires_after_the_grace_time(tmp_path: Path) -> None:
    """Its session expires soon, and the remaining member is notified at once."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_session_disconnect_grace_ms="100") as broker:
            code = CLIENT.format(port=broker.catalogue.advertised[1])
            root = Path(__file__).parents[3]
            client = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=root)
            await until(lambda: len(broker.heartbeat_purgatory) == 1, 20)
            before = deadline(broker)
            client.send_signal(signal.SIGKILL)
            await client.wait()
            await until(lambda: not broker.network.connections)
            assert len(broker.heartbeat_purgatory) == 0
            await until(lambda: deadline(broker) < before)
            assert deadline(broker) <= broker.loop.time() + 5.5

    asyncio.run(main())


def test_member_that_reconnects_within_the_grace_time_stays(tmp_path: Path) -> None:
    """Its next heartbeat gives it the whole session, on any connection; a static member keeps its own."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_session_disconnect_grace_ms="100") as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            await join_and_hold(broker, b, "b", group="h", instance_id="desk")
            long = deadline(broker, "b", "h")
            a.close()
            b.close()
            await until(lambda: not broker.network.connections)
            assert deadline(broker) <= broker.loop.time() + 5.5
            assert deadline(broker, "b", "h") >= long
            again = await Line.to(broker)
            await again.beat(staying("a", epoch))
            assert deadline(broker) > broker.loop.time() + 40

    asyncio.run(main())


def test_stopping_coordinator_releases_heartbeats(tmp_path: Path) -> None:
    """Members get COORDINATOR_LOAD_IN_PROGRESS at once, and are held again after loading."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            coordinator.reload(50)
            assert (await a.answer())[1].error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS
            await until(lambda: coordinator.state == "active")
            assert (await a.beat(staying("a", epoch))).error_code == 0
            a.send(HEARTBEAT, 1, staying("a", epoch))
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            coordinator._fail(OSError("made up"))
            assert (await a.answer())[1].error_code in (0, Errors.COORDINATOR_LOAD_IN_PROGRESS)

    asyncio.run(main())


def test_stopping_broker_releases_heartbeats(tmp_path: Path) -> None:
    """Before it closes the connections; later ones are not held."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            lines = [await Line.to(broker) for _ in range(3)]
            for number, line in enumerate(lines):
                await join_and_hold(broker, line, "a", group=f"g{number}")
            broker.heartbeat_purgatory.close()
            assert len(broker.heartbeat_purgatory) == 0
            assert [(await line.answer())[1].error_code for line in lines] == [0, 0, 0]
            assert (await lines[0].beat(staying("a", 2, group="g0"))).error_code == 0

    asyncio.run(main())


# --- policy changes ---


def test_policy_change_releases_heartbeats(tmp_path: Path) -> None:
    """Disabled: it is answered with Kafka's interval, later ones at once. Enabled: they are held again."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_heartbeat_interval_ms="3000") as broker:
            a = await Line.to(broker)
            response = await a.beat(joining("a", "orders"))
            stays = staying("a", response.member_epoch)
            assert (await a.beat(stays)).heartbeat_interval_ms == 3000
            a.send(HEARTBEAT, 1, stays)
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            await alter(broker, konvene_heartbeat_policy="kafka")
            assert (await a.answer())[1].heartbeat_interval_ms == 5000
            for _ in range(3):
                assert (await a.beat(stays)).heartbeat_interval_ms == 5000
            await alter(broker, konvene_heartbeat_policy="responsive")
            assert (await a.beat(stays)).heartbeat_interval_ms == 3000
            a.send(HEARTBEAT, 1, stays)
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            await alter(broker, konvene_heartbeat_hold_clients="librdkafka")
            assert (await a.answer())[1].error_code == 0
            for _ in range(3):
                assert (await a.beat(stays)).heartbeat_interval_ms == 3000

    asyncio.run(main())


def test_changed_interval_applies_after_the_next_response(tmp_path: Path) -> None:
    """A hold depends on the interval of the previous response."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_heartbeat_interval_ms="2000") as broker:
            a = await Line.to(broker)
            response = await a.beat(joining("a", "orders"))
            stays = staying("a", response.member_epoch)
            before = (await a.beat(stays)).heartbeat_interval_ms
            for interval in (1000, 3000, 500, 4000):
                a.send(HEARTBEAT, 1, stays)
                await until(lambda: len(broker.heartbeat_purgatory) == 1)
                assert hold_left(broker) <= before * 0.8 / 1000
                await alter(broker, konvene_heartbeat_interval_ms=str(interval))
                before = (await a.answer())[1].heartbeat_interval_ms
                assert before == interval

    asyncio.run(main())


# --- large groups ---


async def held_group(broker: Broker, size: int) -> tuple[list[Direct], list[int]]:
    """Create a group of held members; return their connections, and the list that records responses."""
    passed: list[int] = []
    lines = [Direct(broker, passed) for _ in range(size)]
    for number, line in enumerate(lines):
        line.send(HEARTBEAT, 1, joining(f"m{number}", "orders"))
    await until(lambda: len(passed) == 2 * size, 60)
    coordinator: Any = broker.groups.of("g")
    group = coordinator.core.groups["g"]
    while len(broker.heartbeat_purgatory) < size:
        await asyncio.sleep(0.1)
        for number, line in enumerate(lines):
            if line.connection.is_idle:
                line.send(HEARTBEAT, 1, staying(f"m{number}", group.members[f"m{number}"].current.epoch))
    passed.clear()
    return lines, passed


async def released_per_iteration(broker: Broker) -> list[int]:
    """Wait until no heartbeat is held. Return the number released in each iteration of the loop."""
    released, before = [], len(broker.heartbeat_purgatory)
    while before:
        await asyncio.sleep(0)
        released.append(before - len(broker.heartbeat_purgatory))
        before = len(broker.heartbeat_purgatory)
    return released


def test_large_group_is_released_in_batches(tmp_path: Path) -> None:
    """A topic is created, then a hundred members join: each time all are answered, in batches between which
    the loop runs other work. However often the group changes, each heartbeat is released once."""

    async def main() -> None:
        size = 2000
        more = {"group_consumer_assignment_interval_ms": "1000", "num_partitions": "1"}
        async with responsive(tmp_path, **more) as broker:
            lines, passed = await held_group(broker, size)
            await broker.topic_creator.create_missing(["audit"])
            assert 0 < max(await released_per_iteration(broker)) <= BATCH
            await until(lambda: len(passed) == size)
            for number, line in enumerate(lines):
                line.send(HEARTBEAT, 1, staying(f"m{number}", size + 1))
            assert len(broker.heartbeat_purgatory) == size
            passed.clear()
            new = [Direct(broker, []) for _ in range(100)]
            for number, line in enumerate(new):
                line.send(HEARTBEAT, 1, joining(f"n{number}", "orders"))
            assert len(broker.heartbeat_purgatory._releasing) == size
            assert 0 < max(await released_per_iteration(broker)) <= BATCH
            await until(lambda: len(passed) == size)
            for line in (*lines, *new):
                line.end()
            assert (len(broker.network.connections), len(broker.heartbeat_purgatory.ends)) == (0, 0)

    asyncio.run(main())


def test_end_of_a_hold_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """A slow disk would make it longer than the heartbeat interval. A changed response does wait."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            coordinator: Any = broker.groups.of("g")
            slow = coordinator._journal = SlowJournal(coordinator._journal)
            commit = OffsetCommitRequest(
                group_id=group_of_same_coordinator(coordinator, broker), topics=(OFFSET,)
            )
            b.send(OFFSET_COMMIT, 8, commit)
            await until(lambda: coordinator._held)
            beat = len(a.sent_requests)
            a.send(METADATA, 12, MetadataRequest(topics=None))
            broker.loop.call_later(5, slow.may_go_on.set)  # Otherwise a broker that waits would never stop.
            assert (await a.answer())[0] == beat
            assert coordinator._held
            assert (await a.answer())[0] == beat + 1
            a.send(HEARTBEAT, 1, staying("a", epoch))
            await until(lambda: len(coordinator._held) == 2)
            slow.may_go_on.set()
            assert (await a.answer())[1].error_code == 0
            assert (await b.answer())[1].topics[0].partitions[0].error_code == 0

    asyncio.run(main())


class SlowJournal:
    """A journal whose syncs wait for the test."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.may_go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def sync(self) -> None:
        await self.may_go_on.wait()
        await self._journal.sync()


def group_of_same_coordinator(coordinator: Any, broker: Broker) -> str:
    """Return the id of another group with the same coordinator."""
    return next(f"h{n}" for n in range(100) if broker.groups.of(f"h{n}") is coordinator)
