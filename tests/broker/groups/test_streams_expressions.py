"""Streams groups with source topic expressions, on a broker: topics are created, extended and deleted."""

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
"""Time limit of each wait."""

LINES = Topology((Subtopology("0", source_topic_regex=("lines-.*",)),))


class StreamsBroker:
    """A broker, and members of the group `app`."""

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
        """Send the member's heartbeats until `done` returns True."""
        async with asyncio.timeout(LONG_S):
            while not done():
                await member.ensure()
                await asyncio.sleep(0.005)

    async def until_active(self, member: StreamsMember, tasks: int) -> None:
        await self.until(member, lambda: len(member.assignment.active) == tasks)

    def topology_is_resolved(self) -> bool:
        """Return True if the loaded coordinator has matched the group's expressions."""
        coordinator = self.broker.groups.of("app")
        shard = coordinator.core if coordinator is not None and coordinator.state == "active" else None
        group = shard.groups.get("app") if isinstance(shard, GroupShard) else None
        return isinstance(group, StreamsGroup) and group.soft.configured is not None

    async def source_topics(self) -> tuple[str, ...]:
        """Return the source topics in the group's description."""
        described = await self.admin.describe_streams_group("app")
        assert described.topology is not None
        return described.topology.source_topics


@asynccontextmanager
async def streams_broker(path: Path, **settings: str) -> AsyncIterator[StreamsBroker]:
    async with running(path, QUICK | settings) as broker:
        address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
        async with Cluster(address) as cluster:
            yield StreamsBroker(broker, address, cluster)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match the expressions at the first heartbeat after a change of the topics."""
    monkeypatch.setattr(resolution, "REFRESH_PAUSE_MS", -1)


def run(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(job())


def test_tasks_follow_created_and_deleted_topics(tmp_path: Path) -> None:
    """One task per partition of the largest matched topic; without topics, none and MISSING_SOURCE_TOPICS."""

    async def job() -> None:
        async with streams_broker(tmp_path) as broker, broker.member() as ann:
            await broker.until(
                ann, lambda: any(s.code == StatusCode.MISSING_SOURCE_TOPICS for s in ann.statuses)
            )
            (status,) = ann.statuses
            assert status.detail == "No topics match the source topic expressions lines-.*."
            await broker.admin.create_topic("lines-a", partitions=2)
            await broker.until_active(ann, 2)
            assert (ann.statuses, await broker.source_topics()) == ((), ("lines-a",))
            await broker.admin.create_topic("other", partitions=5)
            await broker.admin.create_topic("lines-b", partitions=3)
            await broker.until_active(ann, 3)
            assert await broker.source_topics() == ("lines-a", "lines-b")
            await broker.admin.create_partitions("lines-a", 4)
            await broker.until_active(ann, 4)
            await broker.admin.delete_topics(["lines-a"])
            await broker.until_active(ann, 3)
            assert await broker.source_topics() == ("lines-b",)
            await broker.admin.delete_topics(["lines-b"])
            await broker.until_active(ann, 0)
            await broker.until(ann, lambda: bool(ann.statuses))
            assert await broker.source_topics() == ()

    run(job)


def test_a_reloaded_coordinator_resolves_expressions_without_moving_tasks(tmp_path: Path) -> None:
    """The group epoch is bumped only by the next change of the matched topics."""

    async def job() -> None:
        async with streams_broker(tmp_path) as broker:
            await broker.admin.create_topic("lines-a", partitions=2)
            async with broker.member() as ann:
                await broker.until_active(ann, 2)
                epoch, before = ann.epoch, ann.assignment
                for coordinator in broker.broker.groups.all():
                    coordinator.reload()
                await broker.until(ann, lambda: broker.topology_is_resolved())
                for _ in range(5):
                    await ann.ensure()
                    await asyncio.sleep(0.03)
                assert (ann.epoch, ann.assignment) == (epoch, before)
                await broker.admin.create_topic("lines-b", partitions=3)
                await broker.until_active(ann, 3)
                assert ann.epoch == epoch + 1

    run(job)


def test_offsets_of_matched_topics_can_be_reset_after_a_restart(tmp_path: Path) -> None:
    """`--all-input-topics` resets the matched topics of an empty group."""

    async def create() -> None:
        async with streams_broker(tmp_path) as broker:
            for name, count in (("lines-a", 1), ("lines-b", 2)):
                await broker.admin.create_topic(name, partitions=count)
            await broker.admin.create_topic("other", partitions=1)
            async with broker.member() as ann:
                await broker.until_active(ann, 2)
                row = TopicPartition("lines-a", 0)
                refused = (await broker.admin.delete_streams_group_offsets("app", [row]))[row]
                assert refused is not None and refused.code == Errors.GROUP_SUBSCRIBED_TO_TOPIC
            rows = {TopicPartition(name, 0): 0 for name in ("lines-a", "lines-b", "other")}
            await broker.admin.alter_streams_group_offsets("app", rows)

    async def reset_offsets() -> None:
        async with streams_broker(tmp_path) as broker:
            async with asyncio.timeout(LONG_S):
                while not await broker.source_topics():  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            arguments = ("groups", "reset-offsets", "app", "--all-input-topics", "--to-latest", "--dry-run")
            result = await asyncio.to_thread(call, RunningBroker(broker.address), *arguments)
            assert [line[1] for line in result.lines[1:]] == ["lines-a", "lines-b"], result.err

    run(create)
    run(reset_offsets)


def test_an_invalid_expression_is_rejected(tmp_path: Path) -> None:
    async def job() -> None:
        async with (
            streams_broker(tmp_path) as broker,
            broker.member(Topology((Subtopology("0", source_topic_regex=("[",)),))) as a,
        ):
            with pytest.raises(KafkaError) as refused:
                await broker.until(a, lambda: False)
            assert refused.value.code == Errors.INVALID_REGULAR_EXPRESSION
            assert a.state is MemberState.FATAL

    run(job)


def test_kafka_mode_rejects_expressions(tmp_path: Path) -> None:
    async def job() -> None:
        async with (
            streams_broker(tmp_path, **{"konvene.streams.mode": "kafka"}) as broker,
            broker.member() as ann,
        ):
            with pytest.raises(KafkaError) as refused:
                await broker.until(ann, lambda: False)
            assert refused.value.code == Errors.INVALID_REQUEST

    run(job)
