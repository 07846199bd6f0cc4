"""A streams group reads what expressions match, on a broker that serves: topics come, go and are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running
from tests.cli.commands import RunningBroker, call

from konvene.broker.broker import Broker
from konvene.client.admin.admin import Admin
from konvene.client.errors import KafkaError
from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.membership import StatusCode
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Subtopology, Topology
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology import resolution

QUICK = {
    "group.streams.min.heartbeat.interval.ms": "20", "group.streams.heartbeat.interval.ms": "20",
    "group.streams.min.session.timeout.ms": "100", "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0", "konvene.streams.mode": "kip",
}  # fmt: skip
LONG_S = 30
"""Longer than anything takes on a busy machine."""

LINES = Topology((Subtopology("0", source_topic_regex=("lines-.*",)),))


class Room:
    """A broker, and one member of the group `app`."""

    def __init__(self, broker: Broker, address: str, cluster: Cluster) -> None:
        self.broker = broker
        self.address = address
        self.admin = Admin(cluster)

    @asynccontextmanager
    async def member(self, topology: Topology = LINES, name: str = "ann") -> AsyncIterator[StreamsMember]:
        async with Cluster(self.address, ClientSettings(client_id=name)) as cluster:
            settings = StreamsMemberSettings(process_id=name, member_id=f"{name}-id")
            member = StreamsMember(cluster, "app", topology, settings=settings)
            yield member
            if member.state is not MemberState.FATAL:
                await member.leave()

    async def until(self, member: StreamsMember, done: Callable[[], bool]) -> None:
        """Let it come by until something is so."""
        async with asyncio.timeout(LONG_S):
            while not done():
                await member.ensure()
                await asyncio.sleep(0.005)

    async def has(self, member: StreamsMember, tasks: int) -> None:
        await self.until(member, lambda: len(member.assignment.active) == tasks)

    def knows_what_is_matched(self) -> bool:
        """Whether the coordinator of the group has found out since it was loaded."""
        coordinator = self.broker.groups.of("app")
        shard = coordinator.core if coordinator is not None and coordinator.state == "active" else None
        group = shard.groups.get("app") if isinstance(shard, GroupShard) else None
        return isinstance(group, StreamsGroup) and group.soft.configured is not None

    async def reads(self) -> tuple[str, ...]:
        """What an admin is told that the group reads."""
        described = await self.admin.describe_streams_group("app")
        assert described.topology is not None
        return described.topology.source_topics


@asynccontextmanager
async def room(path: Path, **settings: str) -> AsyncIterator[Room]:
    async with running(path, QUICK | settings) as broker:
        address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
        async with Cluster(address) as cluster:
            yield Room(broker, address, cluster)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that are made are looked at as soon as they are seen."""
    monkeypatch.setattr(resolution, "REFRESH_PAUSE_MS", -1)


def run(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(job())


def test_topics_that_come_and_go_are_read_and_let_go(tmp_path: Path) -> None:
    """As many tasks as the largest has partitions; none while none matches, and then that is told."""

    async def job() -> None:
        async with room(tmp_path) as r, r.member() as ann:
            await r.until(ann, lambda: any(s.code == StatusCode.MISSING_SOURCE_TOPICS for s in ann.statuses))
            (status,) = ann.statuses
            assert status.detail == "No topics match the source topic expressions lines-.*."
            await r.admin.create_topic("lines-a", partitions=2)
            await r.has(ann, 2)
            assert (ann.statuses, await r.reads()) == ((), ("lines-a",))
            await r.admin.create_topic("other", partitions=5)
            await r.admin.create_topic("lines-b", partitions=3)
            await r.has(ann, 3)
            assert await r.reads() == ("lines-a", "lines-b")
            await r.admin.create_partitions("lines-a", 4)
            await r.has(ann, 4)
            await r.admin.delete_topics(["lines-a"])
            await r.has(ann, 3)
            assert await r.reads() == ("lines-b",)
            await r.admin.delete_topics(["lines-b"])
            await r.has(ann, 0)
            await r.until(ann, lambda: bool(ann.statuses))
            assert await r.reads() == ()

    run(job)


def test_a_broker_that_comes_back_finds_out_and_nobody_loses_a_task(tmp_path: Path) -> None:
    """The epoch is the same, and the next one is that of a topic which is made then."""

    async def job() -> None:
        async with room(tmp_path) as r:
            await r.admin.create_topic("lines-a", partitions=2)
            async with r.member() as ann:
                await r.has(ann, 2)
                epoch, before = ann.epoch, ann.assignment
                for coordinator in r.broker.groups.all():
                    coordinator.reload()
                await r.until(ann, lambda: r.knows_what_is_matched())
                for _ in range(5):
                    await ann.ensure()
                    await asyncio.sleep(0.03)
                assert (ann.epoch, ann.assignment) == (epoch, before)
                await r.admin.create_topic("lines-b", partitions=3)
                await r.has(ann, 3)
                assert ann.epoch == epoch + 1

    run(job)


def test_offsets_of_what_is_matched_are_moved_and_kept(tmp_path: Path) -> None:
    """`--all-input-topics` are those that match, also of a group that nobody is in, after a restart."""

    async def made() -> None:
        async with room(tmp_path) as r:
            for name, count in (("lines-a", 1), ("lines-b", 2)):
                await r.admin.create_topic(name, partitions=count)
            await r.admin.create_topic("other", partitions=1)
            async with r.member() as ann:
                await r.has(ann, 2)
                row = TopicPartition("lines-a", 0)
                refused = (await r.admin.delete_streams_group_offsets("app", [row]))[row]
                assert refused is not None and refused.code == Errors.GROUP_SUBSCRIBED_TO_TOPIC
            rows = {TopicPartition(name, 0): 0 for name in ("lines-a", "lines-b", "other")}
            await r.admin.alter_streams_group_offsets("app", rows)

    async def moved() -> None:
        async with room(tmp_path) as r:
            async with asyncio.timeout(LONG_S):
                while not await r.reads():  # noqa: ASYNC110  Nobody tells an admin.
                    await asyncio.sleep(0.01)
            words = ("groups", "reset-offsets", "app", "--all-input-topics", "--to-latest", "--dry-run")
            said = await asyncio.to_thread(call, RunningBroker(r.address), *words)
            assert [line[1] for line in said.lines[1:]] == ["lines-a", "lines-b"], said.err

    run(made)
    run(moved)


def test_an_expression_that_is_none_is_refused(tmp_path: Path) -> None:
    async def job() -> None:
        async with (
            room(tmp_path) as r,
            r.member(Topology((Subtopology("0", source_topic_regex=("[",)),))) as a,
        ):
            with pytest.raises(KafkaError) as refused:
                await r.until(a, lambda: False)
            assert refused.value.code == Errors.INVALID_REGULAR_EXPRESSION
            assert a.state is MemberState.FATAL

    run(job)


def test_as_kafka_none_is_taken(tmp_path: Path) -> None:
    async def job() -> None:
        async with room(tmp_path, **{"konvene.streams.mode": "kafka"}) as r, r.member() as ann:
            with pytest.raises(KafkaError) as refused:
                await r.until(ann, lambda: False)
            assert refused.value.code == Errors.INVALID_REQUEST

    run(job)
