"""`StreamsMember` against a real broker: assignments, statuses, endpoints, and the admin client's view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.admin.group_state import GroupState
from konvene.client.admin.streams_groups import DescriptionStatus
from konvene.client.errors import (
    ClientError,
    KafkaError,
    StreamsInvalidTopologyEpoch,
    UnsupportedVersion,
    raise_for,
)
from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.membership import StatusCode
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Assignment, InternalTopic, Subtopology, Task, Topology
from konvene.errors import Errors

QUICK = {
    "group.streams.min.heartbeat.interval.ms": "20", "group.streams.heartbeat.interval.ms": "20",
    "group.streams.min.session.timeout.ms": "100", "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}  # fmt: skip
LONG_S = 30
"""Time limit of a step, ample for a busy machine."""

WORDS = Topology(
    (
        Subtopology("0", source_topics=("lines",), repartition_sink_topics=("app-words-repartition",)),
        Subtopology(
            "1",
            state_changelog_topics=(InternalTopic("app-counts-changelog"),),
            repartition_source_topics=(InternalTopic("app-words-repartition", 2),),
        ),
    )
)
EVERY = frozenset(Task(name, p) for name in "01" for p in range(2))


class StreamsGroupFixture:
    """A broker with members of the group `app`, which leave at the end."""

    def __init__(self, broker: Broker, address: str, cluster: Cluster) -> None:
        self.broker = broker
        self.address = address
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.members: list[StreamsMember] = []
        self.clusters: list[Cluster] = []
        self.callbacks: list[str] = []

    def member(self, name: str, topology: Topology = WORDS, **settings: Any) -> StreamsMember:
        """Return a member, by default in a process of its own."""

        async def record(event: str, tasks: Assignment) -> None:
            self.callbacks.append(f"{name} {event} {tasks}")

        given = StreamsMemberSettings(**({"process_id": name, "member_id": f"{name}-id"} | settings))
        cluster = Cluster(self.address, ClientSettings(client_id=name))
        member = StreamsMember(
            cluster, "app", topology, settings=given,
            on_assigned=lambda tasks: record("assigned", tasks),
            on_revoked=lambda tasks: record("revoked", tasks),
            on_lost=lambda tasks: record("lost", tasks),
        )  # fmt: skip
        self.members.append(member)
        self.clusters.append(cluster)
        return member

    async def until(self, done: Callable[[], bool], *awake: StreamsMember) -> None:
        """Drive these members (default: all) until `done` is true."""
        async with asyncio.timeout(LONG_S):
            while not done():
                for each in awake or tuple(self.members):
                    if each.state not in (MemberState.LEFT, MemberState.FATAL):
                        await each.ensure()
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        for member, cluster in zip(self.members, self.clusters, strict=True):
            if member.state not in (MemberState.LEFT, MemberState.FATAL):
                await member.leave()
            await cluster.close()


@asynccontextmanager
async def streams_group(path: Path, *, lines: int = 2, **settings: str) -> AsyncIterator[StreamsGroupFixture]:
    async with running(path, QUICK | settings) as broker:
        address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
        async with Cluster(address) as cluster:
            fixture = StreamsGroupFixture(broker, address, cluster)
            if lines:
                await fixture.admin.create_topic("lines", partitions=lines)
            try:
                yield fixture
            finally:
                await fixture.close()


def test_tasks_are_shared_by_two_members(tmp_path: Path) -> None:
    """The coordinator creates the internal topics; tasks are revoked before they are assigned to another
    member."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann = r.member("ann")
            await r.until(lambda: ann.assignment.active == EVERY)
            names = [topic.name for topic in await r.admin.list_topics()]
            assert {"app-words-repartition", "app-counts-changelog"} <= set(names)
            assert ann.is_ready and ann.epoch > 0 and not ann.shutdown_requested
            bob = r.member("bob")
            await r.until(lambda: len(ann.assignment.active) == len(bob.assignment.active) == 2)
            assert ann.assignment.active | bob.assignment.active == EVERY
            await bob.leave()
            await r.until(lambda: ann.assignment.active == EVERY)
            events = [" ".join(line.split()[:2]) for line in r.callbacks]
            assert events[0] == "ann assigned"
            assert events.index("ann revoked") < events.index("bob assigned") < events.index("bob revoked")

    asyncio.run(job())


def test_pending_revocation_keeps_the_group_reconciling(tmp_path: Path) -> None:
    """The group is Reconciling until the member confirms the revocation; descriptions show what is
    pending."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann, bob = r.member("ann"), r.member("bob")
            await r.until(lambda: ann.assignment.active == EVERY, ann)
            await r.until(lambda: ann.rejoin and bob.epoch > 0, bob)
            described = await r.admin.describe_streams_group("app", pending_revocations=True)
            first, second = described.members
            assert (described.state, len(bob.assignment.active)) == (GroupState.RECONCILING, 0)
            assert first.pending_revocation == Assignment(active=EVERY - first.target.active)
            assert first.assignment == first.target
            assert (second.pending_revocation, second.assignment) == (Assignment(), Assignment())
            assert second.target.active == first.pending_revocation.active
            plain = await r.admin.describe_streams_group("app")
            assert [each.pending_revocation for each in plain.members] == [None, None]
            await r.until(lambda: bob.assignment.active == first.pending_revocation.active)

    asyncio.run(job())


def test_standbys_are_on_other_members_and_are_promoted(tmp_path: Path) -> None:
    """Only tasks with state have standbys; the remaining member takes over its standby tasks."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            await r.admin.alter_configs(GROUP_CONFIG, "app", {"streams.num.standby.replicas": "1"})
            ann, bob = r.member("ann"), r.member("bob")
            counting = frozenset(task for task in EVERY if task.subtopology == "1")

            def settled() -> bool:
                one, two = ann.assignment, bob.assignment
                elsewhere = one.standby == counting & two.active and two.standby == counting & one.active
                return elsewhere and one.active | two.active == EVERY and len(one.active) == 2

            await r.until(settled)
            await bob.leave()
            await r.until(lambda: ann.assignment == Assignment(active=EVERY))

    asyncio.run(job())


def test_missing_source_topic_is_reported(tmp_path: Path) -> None:
    """Status 1 names the topic; the group is NotReady until it exists."""

    async def job() -> None:
        async with streams_group(tmp_path, lines=0) as r:
            ann = r.member("ann")
            await r.until(lambda: bool(ann.statuses))
            (status,) = ann.statuses
            assert (status.code, "lines" in status.detail) == (StatusCode.MISSING_SOURCE_TOPICS, True)
            assert not ann.is_ready and not ann.assignment
            assert (await r.admin.describe_streams_group("app")).state == GroupState.NOT_READY
            listed = await r.admin.list_groups(states=[GroupState.NOT_READY], types=["streams"])
            assert [g.group_id for g in listed] == ["app"]
            assert await r.admin.list_groups(states=[GroupState.STABLE]) == []
            await r.admin.create_topic("lines", partitions=2)
            await r.until(lambda: ann.assignment.active == EVERY)
            assert ann.is_ready and ann.statuses == ()

    asyncio.run(job())


def test_shutdown_request_reaches_all_members(tmp_path: Path) -> None:
    """Also if the member that requests it leaves with the same heartbeat."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann, bob = r.member("ann"), r.member("bob")
            await r.until(lambda: bool(ann.assignment and bob.assignment))
            bob.request_shutdown()
            await bob.leave()
            await r.until(lambda: ann.shutdown_requested, ann)
            (status,) = ann.statuses
            assert status.code == StatusCode.SHUTDOWN_APPLICATION
            assert "bob-id" in status.detail

    asyncio.run(job())


def test_members_receive_all_endpoints(tmp_path: Path) -> None:
    """Each endpoint has its current partitions."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann = r.member("ann", application_server=("ann.example", 80))
            bob = r.member("bob", application_server=("bob.example", 80), client_tags={"zone": "b"})

            def shared() -> bool:
                active = [each.active for each in ann.endpoints.values()]
                return ann.endpoints == bob.endpoints and [len(each) for each in active] == [2, 2]

            await r.until(shared)
            assert sorted(ann.endpoints) == [("ann.example", 80), ("bob.example", 80)]
            served = [tp for each in ann.endpoints.values() for tp in each.active]
            topics = ("app-words-repartition", "lines")
            assert sorted(served) == [TopicPartition(topic, p) for topic in topics for p in range(2)]
            described = await r.admin.describe_streams_groups(["app"])
            endpoints = {m.client_id: (m.endpoint, m.tags, m.process_id) for m in described["app"].members}
            assert endpoints == {
                "ann": (("ann.example", 80), {}, "ann"),
                "bob": (("bob.example", 80), {"zone": "b"}, "bob"),
            }

    asyncio.run(job())


def test_static_member_returns_to_its_tasks(tmp_path: Path) -> None:
    """After a temporary leave its tasks are not assigned to other members."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann, bob = r.member("ann", group_instance_id="a"), r.member("bob", group_instance_id="b")
            await r.until(lambda: len(ann.assignment.active) == len(bob.assignment.active) == 2)
            had = bob.assignment
            await bob.leave()
            described = await r.admin.describe_streams_group("app")
            (away,) = (m for m in described.members if m.instance_id == "b")
            assert (away.epoch, away.assignment) == (-2, had)
            again = r.member("bob", group_instance_id="b", member_id="bob-again")
            await r.until(lambda: again.assignment == had)
            assert len(ann.assignment.active) == 2

    asyncio.run(job())


def test_expired_member_loses_its_tasks_and_rejoins(tmp_path: Path) -> None:
    """After its session expired its tasks are lost, not revoked."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann = r.member("ann")
            await r.until(lambda: ann.assignment.active == EVERY)
            assert ann._heartbeats is not None
            ann._heartbeats.cancel()
            await asyncio.gather(ann._heartbeats, return_exceptions=True)
            coordinator = r.broker.groups.of("app")
            assert coordinator is not None
            assert coordinator.fire_timer(("session", "app", "ann-id"))
            assert not (await r.admin.describe_streams_group("app")).members
            r.callbacks.clear()
            ann._heartbeats = None
            await r.until(lambda: ann.membership.incarnation == 2 and ann.assignment.active == EVERY)
            assert [line.split()[1] for line in r.callbacks] == ["lost", "assigned"]

    asyncio.run(job())


def test_other_topology_at_the_same_epoch_is_rejected(tmp_path: Path) -> None:
    """The error has an exception type of its own and is fatal."""

    async def job() -> None:
        async with streams_group(tmp_path, **{"konvene.streams.mode": "kip"}) as r:
            ann = r.member("ann")
            await r.until(lambda: ann.assignment.active == EVERY)
            other = Topology((Subtopology("0", source_topics=("lines",)),))
            bob = r.member("bob", other)
            with pytest.raises(StreamsInvalidTopologyEpoch):
                await r.until(lambda: False, bob)
            assert bob.state is MemberState.FATAL

    asyncio.run(job())


def test_task_offsets_are_described(tmp_path: Path) -> None:
    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann = r.member("ann")
            ann.report({Task("1", 0): 7}, {Task("1", 0): 9})
            await r.until(lambda: ann.assignment.active == EVERY)
            (member,) = (await r.admin.describe_streams_group("app")).members
            assert member.task_offsets == {Task("1", 0): 7}
            assert member.task_end_offsets == {Task("1", 0): 9}

    asyncio.run(job())


def test_admins_describe_and_change_streams_groups(tmp_path: Path) -> None:
    """Topology, offsets by partition, and changes that are rejected while the group has members."""

    async def job() -> None:
        async with streams_group(tmp_path) as r:
            ann = r.member("ann")
            await r.until(lambda: ann.assignment.active == EVERY)
            group = await r.admin.describe_streams_group("app", topology_description=True)
            assert (group.state, group.type, group.assignor) == (GroupState.STABLE, "streams", "sticky")
            assert group.topology is not None
            assert group.topology.source_topics == ("lines",)
            assert group.topology.internal_topics == ("app-counts-changelog", "app-words-repartition")
            assert group.description_status == DescriptionStatus.NOT_STORED
            done = await r.admin.delete_streams_groups(["app", "unknown"])
            names = {name: why and why.name for name, why in done.items()}
            assert names == {"app": "NON_EMPTY_GROUP", "unknown": "GROUP_ID_NOT_FOUND"}
            zero, one, none = (TopicPartition("lines", p) for p in (0, 1, 7))
            rejected = await r.admin.alter_streams_group_offsets("app", {zero: 5})
            assert [why.name for why in rejected.values() if why] == ["UNKNOWN_MEMBER_ID"]
            rejected = await r.admin.delete_streams_group_offsets("app", ["lines"])
            assert {why.name for why in rejected.values() if why} == {"GROUP_SUBSCRIBED_TO_TOPIC"}
            await ann.leave()
            done = await r.admin.alter_streams_group_offsets("app", {zero: 5, one: 6, none: 1})
            assert {tp: why and why.name for tp, why in done.items()} == {
                zero: None, one: None, none: "UNKNOWN_TOPIC_OR_PARTITION",
            }  # fmt: skip
            listed = await r.admin.list_streams_group_offsets({"app": None})
            assert {tp: at.offset for tp, at in listed["app"].items()} == {zero: 5, one: 6}
            assert list((await r.admin.list_streams_group_offsets({"app": [one]}))["app"]) == [one]
            assert await r.admin.delete_streams_group_offsets("app", [zero]) == {zero: None}
            assert await r.admin.delete_streams_group_offsets("app", ["lines"]) == {zero: None, one: None}
            assert await r.admin.alter_streams_group_offsets("app", {}) == {}
            assert await r.admin.delete_streams_groups(["app"]) == {"app": None}
            with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
                await r.admin.describe_streams_group("app")

    asyncio.run(job())


def test_cluster_without_the_protocol(tmp_path: Path) -> None:
    async def job() -> None:
        async with streams_group(
            tmp_path, **{"group.coordinator.rebalance.protocols": "classic,consumer"}
        ) as r:
            ann = r.member("ann")
            with pytest.raises(ClientError, match="does not support the STREAMS group protocol"):
                await ann.ensure()
            with pytest.raises((KafkaError, UnsupportedVersion)):
                await r.admin.describe_streams_group("app")

    asyncio.run(job())


def test_invalid_topology_epoch_has_its_own_exception() -> None:
    with pytest.raises(StreamsInvalidTopologyEpoch) as raised:
        raise_for(Errors.STREAMS_INVALID_TOPOLOGY_EPOCH, "no", about="group app")
    assert str(raised.value) == "group app: STREAMS_INVALID_TOPOLOGY_EPOCH: no"
    assert type(KafkaError(Errors.UNKNOWN_MEMBER_ID)) is KafkaError
