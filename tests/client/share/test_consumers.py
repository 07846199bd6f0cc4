"""`ShareConsumer` against a real broker: delivery, acknowledgement, and the admin client's view."""

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
"""Time limit of a step, ample for a busy machine."""

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW,
)  # fmt: skip


class ShareGroupFixture:
    """A broker with consumers of the share group `g`, which are closed at the end."""

    def __init__(self, address: str, cluster: Cluster) -> None:
        self.address = address
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.consumers: list[ShareConsumer] = []
        self.clusters: list[Cluster] = []

    async def begin(self, topic: str = "t", partitions: int = 1, **settings: str) -> None:
        """Create a topic, and configure the group to start at the earliest offset."""
        await self.admin.create_topic(topic, partitions=partitions)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        await self.admin.alter_configs(GROUP_CONFIG, "g", {"share.auto.offset.reset": "earliest"} | named)

    async def produce(self, *values: str, topic: str = "t", partition: int = 0) -> None:
        async with Producer(self.cluster) as producer:
            for value in values:
                await producer.send(topic, value.encode(), partition=partition)

    def consumer(self, name: str = "a", *topics: str, **options: Any) -> ShareConsumer:
        cluster = Cluster(self.address, ClientSettings(client_id=name))
        consumer = ShareConsumer(cluster, "g", member_id=f"{name}-id", **options)
        consumer.subscribe(topics or ("t",))
        self.consumers.append(consumer)
        self.clusters.append(cluster)
        return consumer

    async def lag(self) -> dict[int, int | None]:
        """Return the lag by partition; None before the first acknowledgement."""
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
async def share_group(path: Path, **settings: str) -> AsyncIterator[ShareGroupFixture]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with running(path, SETTINGS | named) as broker:
        address = f"127.0.0.1:{broker.catalogue.advertised[1]}"
        async with Cluster(address) as cluster:
            fixture = ShareGroupFixture(address, cluster)
            try:
                yield fixture
            finally:
                for consumer in fixture.consumers:
                    await consumer.close()
                for each in fixture.clusters:
                    await each.close()


async def poll_records(consumer: ShareConsumer, least: int = 1) -> list[ShareRecord]:
    """Poll until `least` records arrived; each poll implicitly accepts the previous records."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(LONG_S):
        while len(records) < least:
            records += await consumer.poll()
    return records


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG_S):
        while not await condition():  # noqa: ASYNC110 - the condition is the broker's
            await asyncio.sleep(0.01)


def async_test(job: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Turn a coroutine function into a test with an event loop of its own."""

    @functools.wraps(job)
    def test(tmp_path: Path) -> None:
        asyncio.run(job(tmp_path))

    return test


def values_and_counts(records: list[ShareRecord]) -> list[tuple[str, int]]:
    return [((r.value or b"").decode(), r.delivery_count) for r in records]


@async_test
async def test_records_are_accepted_with_the_next_poll(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two", "three")
        consumer = r.consumer()
        assert values_and_counts(await poll_records(consumer, 3)) == [("one", 1), ("two", 1), ("three", 1)]
        assert await r.lag() == {0: None}
        assert await r.in_flight() == [(0, 2, "acquired", "a-id", 1)]
        assert await consumer.poll(100) == []
        assert await r.lag() == {0: 0}
        assert consumer.lock_ms == 30_000


@async_test
async def test_commit_returns_the_result_per_partition(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        consumer = r.consumer()
        await poll_records(consumer, 2)
        assert await consumer.commit() == {TopicPartition("t", 0): None}
        assert await r.lag() == {0: 0}
        assert await consumer.commit() == {}


@async_test
async def test_two_members_acquire_different_records(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        one = r.consumer("a", explicit=True)
        await r.produce("x")
        first = await poll_records(one)
        other = r.consumer("b", explicit=True)
        await r.produce("y")
        second = await poll_records(other)
        assert [values_and_counts(first), values_and_counts(second)] == [[("x", 1)], [("y", 1)]]
        assert await r.in_flight() == [(0, 0, "acquired", "a-id", 1), (1, 1, "acquired", "b-id", 1)]
        for consumer, record in ((one, first[0]), (other, second[0])):
            consumer.acknowledge(record)
            await consumer.commit()
        assert await r.lag() == {0: 0}


@async_test
async def test_released_records_are_redelivered_and_rejected_ones_are_not(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("keep", "again", "never")
        consumer = r.consumer(explicit=True)
        for record, kind in zip(await poll_records(consumer, 3), (ACCEPT, RELEASE, REJECT), strict=True):
            consumer.acknowledge(record, kind)
        again = await poll_records(consumer)
        assert values_and_counts(again) == [("again", 2)]
        consumer.acknowledge(again[0])
        await consumer.commit()
        assert await r.lag() == {0: 0}


@async_test
async def test_renewed_record_is_returned_again(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("slow")
        consumer = r.consumer(explicit=True)
        (record,) = await poll_records(consumer)
        consumer.acknowledge(record, RENEW)
        assert await poll_records(consumer) == [record]
        consumer.acknowledge(record)
        assert await consumer.commit() == {TopicPartition("t", 0): None}


@async_test
async def test_explicit_mode_requires_acknowledging_all_records(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer(explicit=True)
        (record,) = await poll_records(consumer)
        with pytest.raises(OutOfTurn, match="All records must be acknowledged"):
            await consumer.poll()
        consumer.acknowledge(record)
        await consumer.commit()
        with pytest.raises(OutOfTurn, match="The record cannot be acknowledged"):
            consumer.acknowledge(record)


@async_test
async def test_implicit_mode_rejects_acknowledge(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer()
        (record,) = await poll_records(consumer)
        with pytest.raises(OutOfTurn, match="Implicit acknowledgement"):
            consumer.acknowledge(record, RELEASE)


@async_test
async def test_close_releases_unacknowledged_records(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("done", "not done")
        consumer = r.consumer("a", explicit=True)
        consumer.acknowledge((await poll_records(consumer, 2))[0])
        await consumer.close()
        assert values_and_counts(await poll_records(r.consumer("b"))) == [("not done", 2)]
        group = await r.admin.describe_share_group("g")
        assert [m.member_id for m in group.members] == ["b-id"]


@async_test
async def test_acknowledging_after_lock_expiry_fails(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin(share_record_lock_duration_ms="1000")
        await r.produce("slow")
        callbacks: list[tuple[tuple[int, ...], ClientError | None]] = []

        async def on_acknowledged(
            _: TopicPartition, offsets: tuple[int, ...], error: ClientError | None
        ) -> None:
            callbacks.append((offsets, error))

        slow = r.consumer("a", explicit=True, on_acknowledged=on_acknowledged)
        (record,) = await poll_records(slow)
        other = r.consumer("b", explicit=True)
        assert values_and_counts(await poll_records(other)) == [("slow", 2)]
        slow.acknowledge(record)
        (error,) = (await slow.commit()).values()
        assert isinstance(error, KafkaError)
        assert error.code == Errors.INVALID_RECORD_STATE
        assert callbacks == [((0,), error)]


@async_test
async def test_commit_soon_reports_its_result_in_a_later_call(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        callbacks: list[tuple[int, ...]] = []

        async def on_acknowledged(
            _: TopicPartition, offsets: tuple[int, ...], error: ClientError | None
        ) -> None:
            callbacks.append(offsets)

        consumer = r.consumer(on_acknowledged=on_acknowledged)
        await poll_records(consumer, 2)
        consumer.commit_soon()

        async def all_done() -> bool:
            return await r.lag() == {0: 0}

        await until(all_done)
        assert callbacks == []
        await consumer.commit()
        assert callbacks == [(0, 1)]


@async_test
async def test_wakeup_ends_the_current_or_the_next_poll(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
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
        assert values_and_counts(await poll_records(consumer)) == [("after all", 1)]


@async_test
async def test_poll_respects_its_timeout_while_joining(tmp_path: Path) -> None:
    """Without a broker `poll` returns in time; with one the consumer joins during short polls."""
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
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one")
        consumer = r.consumer()
        while not consumer.assignment:
            await consumer.poll(1)
        assert values_and_counts(await poll_records(consumer)) == [("one", 1)]


@async_test
async def test_closed_consumer_can_subscribe_again(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce("one", "two")
        consumer = r.consumer(explicit=True)
        consumer.acknowledge((await poll_records(consumer, 2))[0])
        await consumer.close()
        assert consumer.assignment == ()
        consumer.subscribe(["t"])
        assert values_and_counts(await poll_records(consumer)) == [("two", 2)]


@async_test
async def test_changed_subscription_replaces_the_topics(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin("t")
        await r.begin("u", partitions=2)
        await r.produce("t1")
        consumer = r.consumer("a", "t")
        assert values_and_counts(await poll_records(consumer)) == [("t1", 1)]
        consumer.subscribe(["u"])
        await r.produce("u1", topic="u", partition=1)
        assert values_and_counts(await poll_records(consumer)) == [("u1", 1)]
        assert consumer.assignment == (TopicPartition("u", 0), TopicPartition("u", 1))


@async_test
async def test_expired_member_rejoins(tmp_path: Path) -> None:
    """A member whose session expired during a pause rejoins and receives its records again."""
    async with share_group(
        tmp_path, group_share_min_session_timeout_ms="200", group_share_session_timeout_ms="200"
    ) as r:
        await r.begin()
        consumer = r.consumer("a", explicit=True)
        await r.produce("one")
        (record,) = await poll_records(consumer)
        assert consumer.member is not None
        beats = consumer.member._heartbeats
        assert beats is not None
        beats.cancel()

        async def removed() -> bool:
            return not (await r.admin.describe_share_group("g")).members

        await until(removed)
        consumer.member._heartbeats = asyncio.ensure_future(consumer.member._send_heartbeats())
        consumer.acknowledge(record)
        assert values_and_counts(await poll_records(consumer)) == [("one", 2)]
        member = consumer.member

        async def fenced() -> bool:
            return member.times_fenced >= 1

        await until(fenced)  # ShareFetch needs no member, and may be answered before the heartbeat.


@async_test
async def test_record_limit_bounds_each_poll(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin(partitions=2)
        for partition in range(2):
            await r.produce(*"abcdefgh", partition=partition)
        consumer = r.consumer(explicit=True, terms=FetchTerms(max_records=3, record_limit=True))
        seen = []
        while len(seen) < 16:
            records = await poll_records(consumer)
            assert len(records) <= 3
            for record in records:
                consumer.acknowledge(record)
            seen += [(record.partition, record.offset) for record in records]
        await consumer.commit()
        assert sorted(seen) == [(p, o) for p in range(2) for o in range(8)]
        assert await r.lag() == {0: 0, 1: 0}


@async_test
async def test_admin_alters_and_deletes_offsets(tmp_path: Path) -> None:
    async with share_group(tmp_path) as r:
        await r.begin()
        await r.produce(*"abc")
        consumer = r.consumer("a")
        assert len(await poll_records(consumer, 3)) == 3
        tp = TopicPartition("t", 0)
        with pytest.raises(KafkaError) as rejected:
            await r.admin.alter_share_group_offsets("g", {tp: 1})
        assert rejected.value.code == Errors.NON_EMPTY_GROUP
        await consumer.commit()
        await consumer.close()
        assert await r.admin.alter_share_group_offsets("g", {tp: 1}) == {tp: None}
        assert await r.lag() == {0: 2}
        assert values_and_counts(await poll_records(r.consumer("b"), 2)) == [("b", 1), ("c", 1)]
        await r.consumers[-1].close()
        deleted = await r.admin.delete_share_group_offsets("g", ["t", "nowhere"])
        assert deleted["t"] is None
        assert isinstance(deleted["nowhere"], KafkaError)
        assert await r.lag() == {}
        assert await r.admin.delete_share_groups(["g"]) == {"g": None}
        with pytest.raises(KafkaError) as error:
            await r.admin.describe_share_group("g")
        assert error.value.code == Errors.GROUP_ID_NOT_FOUND


@async_test
async def test_poll_before_subscribe_is_an_error(tmp_path: Path) -> None:
    async with Cluster("127.0.0.1:1") as cluster:
        consumer = ShareConsumer(cluster, "g")
        with pytest.raises(OutOfTurn, match="not subscribed"):
            await consumer.poll()
        await consumer.close()
        with pytest.raises(Misconfigured):
            ShareConsumer(cluster, "")
