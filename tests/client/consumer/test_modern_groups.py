"""Consumers of consumer groups against a konvene broker: assignment, records, and the admin client's view."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.admin.pending_partitions import blocking_members, member_progress
from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.consumer import Consumer
from konvene.client.consumer.modern_member import ConsumerMember
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Producer
from konvene.errors import Errors

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "20", "group.consumer.heartbeat.interval.ms": "20",
    "group.consumer.min.session.timeout.ms": "100", "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}  # fmt: skip
LONG_S = 30
"""Time limit of each wait."""


class GroupFixture:
    """A broker with consumers of the group `g`, which are closed at the end."""

    def __init__(self, address: str, cluster: Cluster) -> None:
        self.address = address
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.consumers: list[Consumer] = []
        self.clusters: list[Cluster] = []
        self.read: list[int] = []

    def consumer(
        self, name: str, topics: Sequence[str] = ("t",), *, regex: str | None = None, **options: Any
    ) -> Consumer:
        cluster = Cluster(self.address, ClientSettings(client_id=name))
        settings = {"group_protocol": "consumer", "auto_offset_reset": "earliest"} | options
        consumer = Consumer(cluster, "g", **settings)
        consumer.subscribe(() if regex else topics, regex=regex)
        self.consumers.append(consumer)
        self.clusters.append(cluster)
        return consumer

    async def produce(self, topic: str, *values: int) -> None:
        partitions = len((await self.cluster.topic(topic)).partitions)
        async with Producer(self.cluster) as producer:
            for value in values:
                await producer.send(topic, b"%d" % value, partition=value % partitions)

    async def poll(self, *consumers: Consumer) -> None:
        """Poll each consumer once, and check that no partition has two owners."""
        for records in await asyncio.gather(*(c.poll(20) for c in consumers)):
            self.read += (int(r.value or b"-1") for r in records)
        owned = [tp for c in consumers for tp in c.assignment]
        assert len(owned) == len(set(owned)), owned

    async def until(self, done: Callable[[], bool], *consumers: Consumer) -> None:
        async with asyncio.timeout(LONG_S):
            while not done():
                await self.poll(*consumers)

    async def until_shared(self, *consumers: Consumer, each: int) -> None:
        await self.until(lambda: all(len(c.assignment) == each for c in consumers), *consumers)

    async def vanish(self, consumer: Consumer) -> None:
        """Stop a consumer without leaving the group, as if its process were killed."""
        assert isinstance(consumer.member, ConsumerMember)
        task = consumer.member._heartbeats
        assert task is not None
        task.cancel()
        at = self.consumers.index(consumer)
        del self.consumers[at]
        await self.clusters[at].close()


def with_group(
    tmp_path: Path, job: Callable[[GroupFixture], Awaitable[None]], partitions: int = 4, **more: str
) -> None:
    async def whole() -> None:
        settings = QUICK | {name.replace("_", "."): value for name, value in more.items()}
        async with running(tmp_path, settings) as broker:
            address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
            async with Cluster(address) as cluster:
                fixture = GroupFixture(address, cluster)
                await fixture.admin.create_topic("t", partitions=partitions)
                try:
                    await job(fixture)
                    for consumer in fixture.consumers:
                        await consumer.close()
                finally:
                    for each in fixture.clusters:
                        await each.close()

    asyncio.run(whole())


def test_rebalances_lose_and_repeat_no_record(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        await fixture.produce("t", *range(40))
        ann = fixture.consumer("ann")
        await fixture.until(lambda: len(fixture.read) == 40, ann)
        bob = fixture.consumer("bob")
        await fixture.until_shared(ann, bob, each=2)
        await fixture.produce("t", *range(40, 80))
        await fixture.until(lambda: len(fixture.read) == 80, ann, bob)
        fixture.consumers.remove(ann)
        await ann.close()
        await fixture.produce("t", *range(80, 120))
        await fixture.until(lambda: len(fixture.read) == 120, bob)
        assert sorted(fixture.read) == list(range(120))
        group = await fixture.admin.describe_group("g")
        assert (group.type, group.state, group.assignor, group.epoch) == ("consumer", "Stable", "uniform", 4)
        assert [(m.client_id, m.epoch, len(m.assignment)) for m in group.members] == [("bob", 4, 4)]

    with_group(tmp_path, job)


def test_partitions_of_a_killed_member_are_reassigned(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        ann, bob = fixture.consumer("ann"), fixture.consumer("bob")
        await fixture.until_shared(ann, bob, each=2)
        await fixture.admin.alter_configs(GROUP_CONFIG, "g", {"consumer.session.timeout.ms": "1000"})
        assert isinstance(ann.member, ConsumerMember)
        for _ in range(2):  # The config applies from the next heartbeat; one may be pending.
            assert await ann.member.wait_for_response(LONG_S * 1000)
        await fixture.vanish(ann)
        await fixture.until_shared(bob, each=4)

    with_group(tmp_path, job)


def test_a_static_member_returns_to_its_partitions(tmp_path: Path) -> None:
    def static(fixture: GroupFixture, name: str) -> Consumer:
        return fixture.consumer(name, member=MemberSettings(group_instance_id=name))

    async def job(fixture: GroupFixture) -> None:
        ann, bob = static(fixture, "ann"), static(fixture, "bob")
        await fixture.until_shared(ann, bob, each=2)
        assignment, epoch = ann.assignment, (await fixture.admin.describe_group("g")).epoch
        fixture.consumers.remove(ann)
        await ann.close()
        away = member_progress(await fixture.admin.describe_group("g"))
        assert [s.state for s in away if s.member.instance_id == "ann"] == ["AWAY"]
        ann = static(fixture, "ann")
        await fixture.until_shared(ann, bob, each=2)
        assert (ann.assignment, (await fixture.admin.describe_group("g")).epoch) == (assignment, epoch)

    with_group(tmp_path, job)


def test_added_partitions_and_recreated_topics_are_read_from_the_start(
    tmp_path: Path,
) -> None:
    async def job(fixture: GroupFixture) -> None:
        ann = fixture.consumer("ann")
        await fixture.produce("t", 0, 1)
        await fixture.until(lambda: sorted(fixture.read) == [0, 1], ann)
        await fixture.admin.create_partitions("t", 4)
        await fixture.until_shared(ann, each=4)
        await fixture.admin.delete_topics(["t"])
        await fixture.until_shared(ann, each=0)
        await fixture.admin.create_topic("t", partitions=1)
        fixture.cluster.forget_topic("t")
        await fixture.until_shared(ann, each=1)
        await fixture.produce("t", 7)
        await fixture.until(lambda: sorted(fixture.read) == [0, 1, 7], ann)

    with_group(tmp_path, job, partitions=2)


def test_changed_subscriptions_and_expressions_take_effect(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        await fixture.admin.create_topic("u", partitions=1)
        ann = fixture.consumer("ann", regex="t|u")
        await fixture.until_shared(ann, each=5)
        ann.subscribe(["u"])
        await fixture.until(lambda: ann.assignment == (TopicPartition("u", 0),), ann)

    with_group(tmp_path, job)


def test_classic_and_modern_members_share_a_group(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        old = fixture.consumer(
            "old", group_protocol="classic", member=MemberSettings(heartbeat_interval_ms=20),
            assignors=("cooperative-sticky",),
        )  # fmt: skip
        await fixture.until_shared(old, each=4)
        new = fixture.consumer("new")
        await fixture.until_shared(old, new, each=2)
        group = await fixture.admin.describe_group("g")
        assert group.type == "consumer"
        assert {m.client_id: m.upgraded for m in group.members} == {"old": False, "new": True}

    with_group(tmp_path, job)


def test_a_member_that_delays_the_rebalance_is_described(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        ann = fixture.consumer("ann")
        await fixture.until_shared(ann, each=4)
        bob = fixture.consumer("bob")
        assert isinstance(bob.member, ConsumerMember)
        async with asyncio.timeout(LONG_S):
            while True:
                await bob.poll(20)  # Ann does not poll.
                group = await fixture.admin.describe_group("g")
                if blocking_members(group):
                    break
        first, second = member_progress(group)
        assert [s.member.client_id for s in (first, second)] == ["ann", "bob"]
        assert (first.state, second.state) == ("UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")
        assert first.revocations.keys() == second.waits.keys() and len(second.waits) == 2
        assert all([m.client_id for m in owners] == ["ann"] for owners in second.waits.values())
        await fixture.until_shared(ann, bob, each=2)
        assert blocking_members(await fixture.admin.describe_group("g")) == []

    with_group(tmp_path, job)


def test_admins_list_configure_empty_and_delete_consumer_groups(tmp_path: Path) -> None:
    async def job(fixture: GroupFixture) -> None:
        admin, t0 = fixture.admin, TopicPartition("t", 0)
        ann = fixture.consumer("ann", member=MemberSettings(client_rack="r1"))
        bob = fixture.consumer("bob", member=MemberSettings(group_instance_id="i-2"))
        await fixture.until_shared(ann, bob, each=2)
        (listed,) = await admin.list_groups(types=["consumer"], states=["stable"])
        assert (listed.group_id, listed.type, listed.protocol_type) == ("g", "consumer", "consumer")
        assert await admin.list_groups(types=["classic"]) == []
        assert {m.client_id: m.rack_id for m in (await admin.describe_group("g")).members} == {
            "ann": "r1", "bob": None,
        }  # fmt: skip
        refused = (await admin.delete_offsets("g", [t0]))[t0]
        assert refused is not None and refused.code == Errors.GROUP_SUBSCRIBED_TO_TOPIC
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            await admin.delete_groups(["g"])
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await admin.alter_offsets("g", {t0: 1})

        assert isinstance(ann.member, ConsumerMember)
        removed = await admin.remove_members("g", member_ids=[ann.member.member_id], instance_ids=["i-2"])
        assert [r.error for r in removed] == [None, None]
        fixture.consumers.clear()
        await ann.close()
        await bob.close()
        assert (await admin.describe_group("g")).state == "Empty"
        await admin.alter_offsets("g", {t0: 1})
        assert (await admin.committed_offsets("g"))[t0].offset == 1
        assert await admin.delete_offsets("g", [t0]) == {t0: None}
        await admin.delete_groups(["g"])
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.describe_group("g")

    with_group(tmp_path, job)


def test_errors_have_the_coordinators_message(tmp_path: Path) -> None:
    async def refused(fixture: GroupFixture, message: str, **options: Any) -> None:
        consumer = fixture.consumer("ann", **options)
        with pytest.raises(KafkaError) as raised:
            await fixture.poll(consumer)
        assert message in str(raised.value)

    async def job(fixture: GroupFixture) -> None:
        await refused(fixture, "ServerAssignor fair is not supported.", group_remote_assignor="fair")
        await refused(
            fixture, "Invalid RE2J SubscriptionPattern provided in the call to subscribe.", regex="("
        )
        ann = fixture.consumer("ann")
        await fixture.until_shared(ann, each=4)
        await refused(fixture, "GROUP_MAX_SIZE_REACHED")

    with_group(tmp_path, job, group_consumer_max_size="1")
