"""Lag of groups in records and in seconds, their states, and the age of their last rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.metrics.scraping import Samples, measured, samples, scrape, value
from tests.broker.metrics.test_whole import poll_until, running_with_topic, state_of
from tests.broker.net.raw_connections import until
from tests.broker.shares.test_fetch import ACCEPT, GROUP, QUICK, RELEASE, TOPIC, acquired, joined

from konvene.broker.broker import Broker
from konvene.broker.metrics import exposition, group_lags
from konvene.broker.metrics.group_gauges import collect_gauges
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.tables.broker import Snapshot
from konvene.client import Admin, Cluster, Consumer, TopicPartition
from konvene.codec.batches import build_simple
from konvene.log.partition import PartitionLog

HOUR_MS = 3_600_000
Scenario = Callable[[Broker, int, Cluster], Coroutine[Any, Any, None]]


def with_topic(path: Path, scenario: Scenario, settings: dict[str, str] | None = None) -> None:
    """Run a scenario with a topic `orders` of four partitions."""

    async def main() -> None:
        async with running_with_topic(path, settings) as (broker, port, cluster):
            await scenario(broker, port, cluster)

    asyncio.run(main())


def write(broker: Broker, topic: str, index: int, ages_ms: list[int]) -> None:
    """Append a batch of one record for each age."""
    partition = broker.partitions.get(topic, index)
    assert partition is not None
    now_ms = broker.environment.wall_clock_ms()
    for age_ms in ages_ms:
        partition.produce(bytearray(build_simple([(b"k", b"v")], now_ms - age_ms)))


def lag(found: Samples, unit: str, group: str, topic: str = "", protocol: str = "classic") -> float | None:
    """Return a lag metric of a group, or of one of its topics; None if there is no line."""
    labels = {"group": group, "protocol": protocol} | ({"topic": topic} if topic else {})
    name = f"konvene_group_topic_lag_{unit}" if topic else f"konvene_group_lag_{unit}"
    return found.get((name, tuple(sorted(labels.items()))))


def orders(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def test_lag_of_a_stopped_application(tmp_path: Path) -> None:
    """Records from the committed offset to the end, and the age of the first one; no member is needed."""

    async def scenario(broker: Broker, port: int, cluster: Cluster) -> None:
        write(broker, "orders", 0, [5 * HOUR_MS, 2 * HOUR_MS, HOUR_MS])
        write(broker, "orders", 1, [3 * HOUR_MS])
        await Admin(cluster).alter_offsets("g", {orders(0): 1, orders(1): 1, orders(2): 0})
        found = await scrape(port)
        assert lag(found, "records", "g") == lag(found, "records", "g", "orders") == 2
        assert 7200 <= (lag(found, "seconds", "g") or 0) < 7200 + 600
        assert lag(found, "seconds", "g") == lag(found, "seconds", "g", "orders")
        assert value(found, "konvene_group_state", group="g", protocol="classic", state="Empty") == 1
        await Admin(cluster).alter_offsets("g", {orders(0): 3})
        found = await scrape(port)
        assert (lag(found, "records", "g"), lag(found, "seconds", "g")) == (0, 0)

    with_topic(tmp_path, scenario)


def test_lag_of_a_stopped_application_after_a_restart(tmp_path: Path) -> None:
    async def before(broker: Broker, port: int, cluster: Cluster) -> None:
        write(broker, "orders", 0, [HOUR_MS, HOUR_MS])
        await Admin(cluster).alter_offsets("g", {orders(0): 1})

    async def after(broker: Broker, port: int, cluster: Cluster) -> None:
        found = await scrape(port)
        assert lag(found, "records", "g", "orders") == 1
        assert 3600 <= (lag(found, "seconds", "g") or 0) < 3600 + 600

    with_topic(tmp_path, before)
    with_topic(tmp_path, after)


def test_lag_is_summed_over_topics_and_its_age_is_the_largest(tmp_path: Path) -> None:
    """A committed offset above the end, as after a truncation, is no lag; a deleted topic has none."""

    async def scenario(broker: Broker, port: int, cluster: Cluster) -> None:
        await broker.topic_creator.create_missing(["letters"])
        write(broker, "orders", 0, [HOUR_MS])
        write(broker, "letters", 3, [4 * HOUR_MS, 0])
        admin = Admin(cluster)
        await admin.alter_offsets("g", {orders(0): 0, orders(1): 7, TopicPartition("letters", 3): 0})
        found = await scrape(port)
        assert lag(found, "records", "g") == 3
        assert lag(found, "records", "g", "orders") == 1
        assert lag(found, "records", "g", "letters") == 2
        assert (lag(found, "seconds", "g") or 0) >= 4 * 3600
        assert 3600 <= (lag(found, "seconds", "g", "orders") or 0) < 2 * 3600
        await admin.delete_topics(["letters"])
        await until(lambda: broker.partitions.get("letters", 3) is None)
        found = await scrape(port)
        assert lag(found, "records", "g") == 1
        assert lag(found, "records", "g", "letters") is None

    with_topic(tmp_path, scenario)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_group_with_a_member_has_state_and_age_of_its_rebalance(tmp_path: Path, kind: str) -> None:
    """A deleted group has none of them."""

    async def scenario(broker: Broker, port: int, cluster: Cluster) -> None:
        write(broker, "orders", 0, [0, 0])
        consumer = Consumer(cluster, "g", group_protocol=kind, auto_offset_reset="earliest")
        consumer.subscribe(["orders"])
        stop = asyncio.Event()
        polling = asyncio.ensure_future(poll_until([consumer], stop))
        await until(lambda: state_of(broker, "g") == "1 Stable", 30)
        stop.set()
        await polling
        await consumer.commit({orders(0): 1})
        labels = {"group": "g", "protocol": kind}
        found = await scrape(port)
        assert lag(found, "records", "g", protocol=kind) == 1
        states = {
            dict(of)["state"]: count
            for (name, of), count in found.items()
            if name == "konvene_group_state" and ("group", "g") in of
        }
        assert states == {"Stable": 1}
        assert value(found, "konvene_group_members", **labels) == 1
        age = ("konvene_group_last_rebalance_age_seconds", tuple(sorted(labels.items())))
        assert 0 <= found[age] < 600
        await consumer.close()
        await until(lambda: state_of(broker, "g") == "0 Empty", 30)
        await Admin(cluster).delete_groups(["g"])
        assert not any(("group", "g") in of for _, of in await scrape(port))

    with_topic(tmp_path, scenario)


def test_only_groups_with_a_label_have_a_lag(tmp_path: Path) -> None:
    """Groups without members use half of the labels; topics beyond their limit share one line."""

    async def scenario(broker: Broker, port: int, cluster: Cluster) -> None:
        await broker.topic_creator.create_missing(["a", "b"])
        for topic in ("orders", "a", "b"):
            write(broker, topic, 0, [0])
        for group in ("g", "h", "i"):
            offsets = {TopicPartition(topic, 0): 0 for topic in ("orders", "a", "b")}
            await Admin(cluster).alter_offsets(group, offsets)
        found = await scrape(port)
        groups = {dict(of)["group"] for name, of in found if name == "konvene_group_lag_records"}
        assert len(groups) == 2
        assert OTHER not in groups
        lines = [
            (dict(of)["topic"], count)
            for (name, of), count in found.items()
            if name == "konvene_group_topic_lag_records"
        ]
        assert sum(count for _, count in lines) == 6
        assert sorted(count for topic, count in lines if topic == OTHER) == [3]
        assert len([topic for topic, _ in lines if topic != OTHER]) == 3

    with_topic(tmp_path, scenario, {"konvene.metrics.groups": "4", "konvene.metrics.topics": "3"})


def test_timestamps_are_read_once_and_not_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape reads again only where the offset changed; without a timestamp there is no line in seconds."""
    monkeypatch.setattr(group_lags, "MAX_READS", 1)

    async def scenario(broker: Broker, port: int, cluster: Cluster) -> None:
        await broker.topic_creator.create_missing(["letters"])
        letters = TopicPartition("letters", 0)
        for topic in ("orders", "letters"):
            write(broker, topic, 0, [HOUR_MS, HOUR_MS])
        await Admin(cluster).alter_offsets("g", {orders(0): 0, letters: 0})
        reads: list[int] = []
        timestamp_at = PartitionLog.timestamp_at

        def recorded(log: PartitionLog, offset: int) -> int | None:
            reads.append(offset)
            return timestamp_at(log, offset)

        monkeypatch.setattr(PartitionLog, "timestamp_at", recorded)
        known = []
        for _ in range(3):
            found = await scrape(port)
            assert lag(found, "records", "g") == 4
            known.append(
                sum(lag(found, "seconds", "g", topic) is not None for topic in ("orders", "letters"))
            )
        assert known == [1, 2, 2]
        assert reads == [0, 0]
        await Admin(cluster).alter_offsets("g", {letters: 1})
        await scrape(port)
        assert reads == [0, 0, 1]

    with_topic(tmp_path, scenario)


def test_lag_of_a_share_group(tmp_path: Path) -> None:
    """The records whose delivery is not complete; unknown until the first acknowledgement is written."""

    async def scenario(broker_client: BrokerClient) -> None:
        broker = broker_client.broker
        assert broker.meter is not None

        async def shown() -> Samples:
            assert broker.meter is not None
            gauges = await collect_gauges(broker, broker.meter)
            page = exposition.lines(Snapshot(broker, broker.meter, gauges))
            return samples(exposition.text(page, "")[0])

        (one,) = await joined(broker_client)
        for content in b"abc":
            broker_client.write(TOPIC, bytes((content,)))
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 2, 1)]
        assert lag(await shown(), "records", GROUP, protocol="share") is None
        await one.acknowledge([(0, 0, RELEASE), (2, 2, ACCEPT)])
        assert lag(await shown(), "records", GROUP, protocol="share") == 2
        await one.fetch(wait_ms=1000)
        await one.acknowledge([(0, 0, ACCEPT)])
        found = await shown()
        assert lag(found, "records", GROUP, TOPIC, protocol="share") == 1
        await one.acknowledge([(1, 1, ACCEPT)])
        broker.meter.forget(GROUP)  # As after a restart.
        found = await shown()
        assert (lag(found, "records", GROUP, protocol="share")) == 0
        assert (lag(found, "seconds", GROUP, protocol="share")) == 0

    run_with_broker(tmp_path, scenario, QUICK | {"konvene.metrics.port": "0"})


def test_metrics_before_the_first_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with measured(tmp_path) as (_, port):
            assert not any(name.startswith("konvene_group_lag") for name, _ in await scrape(port))

    asyncio.run(main())
