"""Share consumers against a broker of ours: who gets what, what becomes of it, and what admins see."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.errors import ClientError, KafkaError, Misconfigured, OutOfTurn, WokenUp
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Producer
from konvene.client.share.consumer import AcknowledgeType, FetchTerms, ShareConsumer, ShareRecord
from konvene.errors import Errors

SETTINGS = {
    "group.share.heartbeat.interval.ms": "50", "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000", "group.share.record.lock.duration.ms": "30000",
}  # fmt: skip
LONG_S = 30
"""Longer than anything takes on a busy machine."""

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW,
)  # fmt: skip


class Room:
    """A broker, and members of the share group `g` that leave at the end."""

    def __init__(self, address: str, cluster: Cluster) -> None:
        self.address = address
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.consumers: list[ShareConsumer] = []
        self.clusters: list[Cluster] = []

    async def begin(self, topic: str = "t", partitions: int = 1, **settings: str) -> None:
        """A topic, and a group that reads what was there before it."""
        await self.admin.create_topic(topic, partitions=partitions)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        await self.admin.alter_configs(GROUP_CONFIG, "g", {"share.auto.offset.reset": "earliest"} | named)

    async def produce(self, *values: str, topic: str = "t", partition: int = 0) -> None:
        async with Producer(self.cluster) as producer:
            for value in values:
                await producer.send(topic, value.encode(), partition=partition)

    def consumer(self, name: str = "a", *topics: str, **options: Any) -> ShareConsumer:
        cluster = Cluster(self.address, ClientSettings(client_id=name))
        made = ShareConsumer(cluster, "g", member_id=f"{name}-id", **options)
        made.subscribe(topics or ("t",))
        self.consumers.append(made)
        self.clusters.append(cluster)
        return made

    async def lag(self) -> dict[int, int | None]:
        """By partition; None until something was acknowledged. Where the group stands moves later still."""
        found = (await self.admin.list_share_group_offsets({"g": None}))["g"]
        return {tp.partition: at.lag for tp, at in found.items()}

    async def in_flight(self) -> list[tuple[int, int, str, str | None, int]]:
        found = (await self.admin.list_share_group_offsets({"g": None}, in_flight=True))["g"]
        return [
            (each.first_offset, each.last_offset, each.state, each.member_id, each.delivery_count)
            for at in found.values()
            for each in at.in_flight or ()
        ]


@asynccontextmanager
async def room(path: Path, **settings: str) -> AsyncIterator[Room]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with running(path, SETTINGS | named) as broker:
        address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
        async with Cluster(address) as cluster:
            made = Room(address, cluster)
            try:
                yield made
            finally:
                for consumer in made.consumers:
                    await consumer.close()
                for each in made.clusters:
                    await each.close()


async def some(consumer: ShareConsumer, least: int = 1) -> list[ShareRecord]:
    """Records of polls in a row; each poll accepts what the one before brought."""
    got: list[ShareRecord] = []
    async with asyncio.timeout(LONG_S):
        while len(got) < least:
            got += await consumer.poll()
    return got


async def until(so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG_S):
        while not await so():  # noqa: ASYNC110 - it is the broker that is asked
            await asyncio.sleep(0.01)


def whole(job: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """A test that is a coroutine, with a loop of its own."""

    @functools.wraps(job)
    def test(tmp_path: Path) -> None:
        asyncio.run(job(tmp_path))

    return test


def said(records: list[ShareRecord]) -> list[tuple[str, int]]:
    return [((r.value or b"").decode(), r.delivery_count) for r in records]


@whole
async def test_records_are_accepted_with_the_next_poll(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two", "three")
        consumer = r.consumer()
        assert said(await some(consumer, 3)) == [("one", 1), ("two", 1), ("three", 1)]
        assert await r.lag() == {0: None}
        assert await r.in_flight() == [(0, 2, "acquired", "a-id", 1)]
        assert await consumer.poll(100) == []
        assert await r.lag() == {0: 0}
        assert consumer.lock_ms == 30_000


@whole
async def test_commit_says_what_became_of_it(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        consumer = r.consumer()
        await some(consumer, 2)
        assert await consumer.commit() == {TopicPartition("t", 0): None}
        assert await r.lag() == {0: 0}
        assert await consumer.commit() == {}


@whole
async def test_each_of_two_members_has_its_own_records(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        one = r.consumer("a", explicit=True)
        await r.produce("x")
        first = await some(one)
        other = r.consumer("b", explicit=True)
        await r.produce("y")
        second = await some(other)
        assert [said(first), said(second)] == [[("x", 1)], [("y", 1)]]
        assert await r.in_flight() == [(0, 0, "acquired", "a-id", 1), (1, 1, "acquired", "b-id", 1)]
        for consumer, record in ((one, first[0]), (other, second[0])):
            consumer.acknowledge(record)
            await consumer.commit()
        assert await r.lag() == {0: 0}


@whole
async def test_released_records_come_again_and_rejected_ones_do_not(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("keep", "again", "never")
        consumer = r.consumer(explicit=True)
        for record, kind in zip(await some(consumer, 3), (ACCEPT, RELEASE, REJECT), strict=True):
            consumer.acknowledge(record, kind)
        again = await some(consumer)
        assert said(again) == [("again", 2)]
        consumer.acknowledge(again[0])
        await consumer.commit()
        assert await r.lag() == {0: 0}


@whole
async def test_a_renewed_record_is_handed_out_again_by_itself(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("slow")
        consumer = r.consumer(explicit=True)
        (record,) = await some(consumer)
        consumer.acknowledge(record, RENEW)
        assert await some(consumer) == [record]
        consumer.acknowledge(record)
        assert await consumer.commit() == {TopicPartition("t", 0): None}


@whole
async def test_with_explicit_acknowledgement_nothing_may_be_left_undecided(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer(explicit=True)
        (record,) = await some(consumer)
        with pytest.raises(OutOfTurn, match="All records must be acknowledged"):
            await consumer.poll()
        consumer.acknowledge(record)
        await consumer.commit()
        with pytest.raises(OutOfTurn, match="The record cannot be acknowledged"):
            consumer.acknowledge(record)


@whole
async def test_without_it_nothing_can_be_decided(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer()
        (record,) = await some(consumer)
        with pytest.raises(OutOfTurn, match="Implicit acknowledgement"):
            consumer.acknowledge(record, RELEASE)


@whole
async def test_who_closes_gives_back_what_was_not_decided(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("done", "not done")
        consumer = r.consumer("a", explicit=True)
        consumer.acknowledge((await some(consumer, 2))[0])
        await consumer.close()
        assert said(await some(r.consumer("b"))) == [("not done", 2)]
        group = await r.admin.describe_share_group("g")
        assert [m.member_id for m in group.members] == ["b-id"]


@whole
async def test_a_lock_that_ran_out_cannot_be_acknowledged_any_more(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin(share_record_lock_duration_ms="1000")
        await r.produce("slow")
        heard: list[tuple[tuple[int, ...], ClientError | None]] = []

        async def hear(_: TopicPartition, offsets: tuple[int, ...], error: ClientError | None) -> None:
            heard.append((offsets, error))

        slow = r.consumer("a", explicit=True, on_acknowledged=hear)
        (record,) = await some(slow)
        other = r.consumer("b", explicit=True)
        assert said(await some(other)) == [("slow", 2)]
        slow.acknowledge(record)
        (error,) = (await slow.commit()).values()
        assert isinstance(error, KafkaError)
        assert error.code == Errors.INVALID_RECORD_STATE
        assert heard == [((0,), error)]


@whole
async def test_commit_soon_does_not_wait_and_a_later_call_tells(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        heard: list[tuple[int, ...]] = []

        async def hear(_: TopicPartition, offsets: tuple[int, ...], error: ClientError | None) -> None:
            heard.append(offsets)

        consumer = r.consumer(on_acknowledged=hear)
        await some(consumer, 2)
        consumer.commit_soon()

        async def all_done() -> bool:
            return await r.lag() == {0: 0}

        await until(all_done)
        assert heard == []
        await consumer.commit()
        assert heard == [(0, 1)]


@whole
async def test_wakeup_ends_a_poll_now_or_the_next_one(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        consumer = r.consumer()
        await consumer.poll(50)
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await asyncio.sleep(0.05)
        consumer.wakeup()
        with pytest.raises(WokenUp):
            await polling
        consumer.wakeup()
        with pytest.raises(WokenUp):
            await consumer.poll(60_000)
        await r.produce("after all")
        assert said(await some(consumer)) == [("after all", 1)]


@whole
async def test_a_poll_takes_no_longer_than_it_may_and_joins_meanwhile(tmp_path: Path) -> None:
    """Nobody is there to let it in; then somebody is."""
    async with Cluster("127.0.0.1:1", ClientSettings(default_api_timeout_ms=60_000)) as nowhere:
        alone = ShareConsumer(nowhere, "g")
        alone.subscribe(["t"])
        assert await alone.poll(20) == []
        polling = asyncio.ensure_future(alone.poll(60_000))
        await asyncio.sleep(0.05)
        alone.wakeup()
        with pytest.raises(WokenUp):
            await polling
        await alone.close()
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer()
        while not consumer.assignment:
            await consumer.poll(1)
        assert said(await some(consumer)) == [("one", 1)]


@whole
async def test_who_has_closed_may_subscribe_again(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        consumer = r.consumer(explicit=True)
        consumer.acknowledge((await some(consumer, 2))[0])
        await consumer.close()
        assert consumer.assignment == ()
        consumer.subscribe(["t"])
        assert said(await some(consumer)) == [("two", 2)]


@whole
async def test_other_topics_are_read_from_then_on(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin("t")
        await r.begin("u", partitions=2)
        await r.produce("t1")
        consumer = r.consumer("a", "t")
        assert said(await some(consumer)) == [("t1", 1)]
        consumer.subscribe(["u"])
        await r.produce("u1", topic="u", partition=1)
        assert said(await some(consumer)) == [("u1", 1)]
        assert consumer.assignment == (TopicPartition("u", 0), TopicPartition("u", 1))


@whole
async def test_a_member_that_was_forgotten_comes_back(tmp_path: Path) -> None:
    """Its session was too short for the pause that it made."""
    async with room(
        tmp_path, group_share_min_session_timeout_ms="200", group_share_session_timeout_ms="200"
    ) as r:
        await r.begin()
        consumer = r.consumer("a", explicit=True)
        await r.produce("one")
        (record,) = await some(consumer)
        assert consumer.member is not None
        beats = consumer.member._heartbeats
        assert beats is not None
        beats.cancel()

        async def forgotten() -> bool:
            return not (await r.admin.describe_share_group("g")).members

        await until(forgotten)
        consumer.member._heartbeats = asyncio.ensure_future(consumer.member._send_heartbeats())
        consumer.acknowledge(record)
        assert said(await some(consumer)) == [("one", 2)]
        assert consumer.member.times_fenced == 1


@whole
async def test_with_a_limit_no_poll_brings_more(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin(partitions=2)
        for partition in range(2):
            await r.produce(*"abcdefgh", partition=partition)
        consumer = r.consumer(explicit=True, terms=FetchTerms(max_records=3, record_limit=True))
        seen = []
        while len(seen) < 16:
            got = await some(consumer)
            assert len(got) <= 3
            for record in got:
                consumer.acknowledge(record)
            seen += [(record.partition, record.offset) for record in got]
        await consumer.commit()
        assert sorted(seen) == [(p, o) for p in range(2) for o in range(8)]
        assert await r.lag() == {0: 0, 1: 0}


@whole
async def test_offsets_of_a_group_are_moved_and_forgotten(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.begin()
        await r.produce(*"abc")
        consumer = r.consumer("a")
        assert len(await some(consumer, 3)) == 3
        tp = TopicPartition("t", 0)
        with pytest.raises(KafkaError) as refused:
            await r.admin.alter_share_group_offsets("g", {tp: 1})
        assert refused.value.code == Errors.NON_EMPTY_GROUP
        await consumer.commit()
        await consumer.close()
        assert await r.admin.alter_share_group_offsets("g", {tp: 1}) == {tp: None}
        assert await r.lag() == {0: 2}
        assert said(await some(r.consumer("b"), 2)) == [("b", 1), ("c", 1)]
        await r.consumers[-1].close()
        nowhere = await r.admin.delete_share_group_offsets("g", ["t", "nowhere"])
        assert nowhere["t"] is None
        assert isinstance(nowhere["nowhere"], KafkaError)
        assert await r.lag() == {}
        assert await r.admin.delete_share_groups(["g"]) == {"g": None}
        with pytest.raises(KafkaError) as gone:
            await r.admin.describe_share_group("g")
        assert gone.value.code == Errors.GROUP_ID_NOT_FOUND


@whole
async def test_before_it_subscribes_there_is_nothing_to_do(tmp_path: Path) -> None:
    async with Cluster("127.0.0.1:1") as cluster:
        consumer = ShareConsumer(cluster, "g")
        with pytest.raises(OutOfTurn, match="not subscribed"):
            await consumer.poll()
        await consumer.close()
        with pytest.raises(Misconfigured):
            ShareConsumer(cluster, "")
