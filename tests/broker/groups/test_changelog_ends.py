"""A classic member reports its task offsets, and the broker looks up the changelogs' end offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.running import running
from tests.groups.streams.classic.threads import Thread

from konvene.broker.broker import Broker
from konvene.broker.groups import changelog_ends
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.changelog_ends import LOOK_UP_ENDS, EndsFound, EndsToLookUp
from konvene.groups.streams.group import StreamsGroup
from konvene.log.errors import LogOffline
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.shard.contract import Effect

SETTINGS = {
    "konvene.streams.mode": "kip",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.task.offset.interval.ms": "1",
    "group.streams.task.offset.interval.ms": "1",
    "group.streams.acceptable.recovery.lag": "2",
}
TOPOLOGY = wire.Topology(
    subtopologies=(
        wire.Subtopology(
            subtopology_id="0",
            source_topics=("orders",),
            state_changelog_topics=(wire.TopicInfo(name="counts"), wire.TopicInfo(name="sums")),
        ),
    )
)
LONG_S = 20


async def ready(broker: Broker) -> Coordinator:
    """Topics of two partitions: five records are in both changelogs of the first, one of the second."""
    await broker.groups.make_ready()
    await broker.groups.loaded()
    names = ("orders", "counts", "sums")
    wanted = tuple(CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names)
    call = RequestContext(api_version=7, fresh_ids=broker.environment.fresh_ids(len(names)))
    await broker.catalogue.coordinator.submit(CreateTopicsRequest(topics=wanted), call)
    for topic, index in (("counts", 0), ("sums", 0), ("counts", 1)):
        log = broker.partitions.get(topic, index)
        assert log is not None
        log.append([(b"k", b"%d" % n) for n in range(5)], broker.environment.wall_clock_ms())
        await log.sync()
    found = broker.groups.of("g")
    assert found is not None
    return found


def group(coordinator: Coordinator) -> StreamsGroup:
    found = coordinator.core.groups["g"]  # type: ignore[attr-defined]
    assert isinstance(found, StreamsGroup)
    return found


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("the condition did not become true")


class Ann:
    """A member of the streams protocol that runs its assigned tasks and reports no task offsets."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.epoch = 0
        self.active: tuple[Any, ...] = ()

    async def beat(self) -> None:
        initial = {"rebalance_timeout_ms": 9000, "topology": TOPOLOGY, "process_id": "ann"}
        request = wire.StreamsGroupHeartbeatRequest(
            group_id="g", member_id="ann", member_epoch=self.epoch, active_tasks=self.active,
            standby_tasks=(), warmup_tasks=(), **(initial if not self.epoch else {}),
        )  # fmt: skip
        answer = await self.coordinator.submit(request, RequestContext(api_version=1, client_id="ann"))
        assert isinstance(answer, wire.StreamsGroupHeartbeatResponse)
        assert answer.error_code == Errors.NONE, answer.error_message
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active = answer.active_tasks

    @property
    def tasks(self) -> list[int]:
        return [partition for each in self.active for partition in each.partitions]


class Bob(Thread):
    """A member of the classic protocol, on a broker."""

    async def settle_on(self, coordinator: Coordinator) -> Errors:
        """Heartbeat as a member; join and sync when the response requires it."""

        async def ask(request: Any, version: int) -> Any:
            return await coordinator.submit(request, RequestContext(version, "bob", "/127.0.0.1", ("bob-1",)))

        if self.generation >= 0:
            error = Errors((await ask(self.beat_request(), 4)).error_code)
            if error is not Errors.REBALANCE_IN_PROGRESS:
                return error
        while self.joined(await ask(self.join_request(), 9)):
            pass
        return self.synced(await ask(self.sync_request(), 5))


def test_a_member_that_has_caught_up_runs_the_task(tmp_path: Path) -> None:
    """Both tasks move when their copies are within two records of the changelogs' end."""

    async def main() -> None:
        async with running(tmp_path, SETTINGS) as broker:
            coordinator = await ready(broker)
            ann, bob = Ann(coordinator), Bob("bob")
            for _ in range(2):
                await ann.beat()
            assert ann.tasks == [0, 1]
            bob.disk = {("0", 0): 7, ("0", 1): 2}
            async with asyncio.timeout(LONG_S):
                await bob.settle_on(coordinator)
                await until(lambda: bool(group(coordinator).reported[bob.member_id].end_offsets))
                known = group(coordinator).reported
                assert known[bob.member_id].end_offsets == {"0": {0: 10, 1: 5}}
                assert (bob.active, len(bob.standby)) == ([], 1)
                [task] = bob.standby
                bob.disk[task] += 1
                while not bob.active:
                    await asyncio.sleep(0.002)
                    await ann.beat()
                    await bob.settle_on(coordinator)
                assert bob.active == [task]
                assert ann.tasks == [1 - task[1]]

    asyncio.run(main())


def look_up(broker: Any, *partitions: tuple[str, int]) -> Any:
    return changelog_ends.look_up(broker.partitions, EndsToLookUp("g", "m", ((("0", 0), partitions),)))


def test_unavailable_partitions_are_left_out(tmp_path: Path) -> None:
    """A missing topic, a missing partition, or a failed disk."""

    async def main() -> None:
        async with running(tmp_path, SETTINGS) as broker:
            await ready(broker)
            partitions = (("counts", 0), ("sums", 1), ("counts", 2), ("other", 0))
            assert (await look_up(broker, *partitions)).ends == {("counts", 0): 5, ("sums", 1): 0}
            log = broker.partitions.get("counts", 0)
            assert log is not None
            log.log.health.failure = LogOffline("the disk failed")
            assert (await look_up(broker, *partitions)).ends == {}
            log.log.health.failure = None

    asyncio.run(main())


def test_changelogs_end_at_the_high_watermark(tmp_path: Path) -> None:
    """If every write waits for the disk, unsynced records do not count."""

    async def main() -> None:
        async with running(tmp_path, SETTINGS | {"konvene.log.fsync.topics": "true"}) as broker:
            await ready(broker)
            log = broker.partitions.get("counts", 0)
            assert log is not None
            log.append([(b"k", b"v")], broker.environment.wall_clock_ms())
            assert log.end_offset == 6
            assert (await look_up(broker, ("counts", 0))).ends == {("counts", 0): 5}
            await log.sync()
            assert (await look_up(broker, ("counts", 0))).ends == {("counts", 0): 6}

    asyncio.run(main())


def test_long_lists_are_looked_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run between two slices."""
    monkeypatch.setattr(changelog_ends, "SLICE", 10)
    partition = SimpleNamespace(online=True, high_watermark=7)
    partitions: Any = SimpleNamespace(get=lambda topic, index: partition)
    request = EndsToLookUp("g", "m", tuple((("0", n), (("counts", n),)) for n in range(95)))

    async def main() -> tuple[EndsFound, int]:
        iterations, found = 0, asyncio.ensure_future(changelog_ends.look_up(partitions, request))
        while not found.done():
            await asyncio.sleep(0)
            iterations += 1
        return found.result(), iterations

    found, iterations = asyncio.run(main())
    assert found == EndsFound(request, {("counts", n): 7 for n in range(95)})
    assert iterations >= 10


@pytest.mark.parametrize("loads", [False, True])
def test_a_reloaded_coordinator_does_not_receive_the_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: bool
) -> None:
    """The next join requests them again."""
    events: list[Any] = []
    request = EndsToLookUp("g", "m", ((("0", 0), (("counts", 0),)),))

    async def main() -> None:
        async with running(tmp_path, SETTINGS) as broker:
            coordinator = await ready(broker)
            monkeypatch.setattr(Coordinator, "inform", lambda self, event: events.append(event))
            work = broker.groups._work
            work.perform(coordinator, Effect(LOOK_UP_ENDS, request))
            if loads:
                coordinator.core = GroupShard()
            await until(lambda: repr(work) == "<group work: 0 running>")

    asyncio.run(main())
    assert events == ([] if loads else [EndsFound(request, {("counts", 0): 5})])
