"""Heartbeats are held only for clients that tolerate it (R4), and for less than the heartbeat interval of the
previous response (R2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.holds import hold_left, responsive
from tests.broker.net.raw_connections import HEARTBEAT, Line, joining, staying, until

from konvene.broker.net.heartbeat_purgatory import may_be_held
from konvene.configs.broker.table import BROKER

CLIENTS: Any = BROKER["konvene.heartbeat.hold.clients"].default


@pytest.mark.parametrize("instance", [None, "desk"])
@pytest.mark.parametrize("interval", [400, 1000, 3000])
def test_hold_is_shorter_than_the_heartbeat_interval(
    tmp_path: Path, interval: int, instance: str | None
) -> None:
    """By a fifth, at least 0.25 s; for a static member it is at most 0.8 s."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_heartbeat_interval_ms=str(interval)) as broker:
            a = await Line.to(broker)
            response = await a.beat(joining("a", "orders", instance_id=instance))
            stays = staying("a", response.member_epoch)  # The instance id may be omitted in later heartbeats.
            assert (await a.beat(stays)).heartbeat_interval_ms == interval
            a.send(HEARTBEAT, 1, stays)
            await until(lambda: len(broker.heartbeat_purgatory) == 1)
            most_s = (interval - max(250, interval // 5)) / 1000
            assert 0 < hold_left(broker) <= (most_s if instance is None else min(most_s, 0.8))
            assert (await a.answer(5))[1].error_code == 0
            assert len(broker.heartbeat_purgatory) == 0

    asyncio.run(main())


def test_first_heartbeat_of_a_connection_is_not_held(tmp_path: Path) -> None:
    """The response with the interval may have been lost with the previous connection.

    The first response has the assignment, so the next heartbeat is decided too, and the one after it is held.
    """

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, b = await Line.to(broker), await Line.to(broker)
            response = await a.beat(joining("a", "orders"))
            stays = staying("a", response.member_epoch)
            await a.beat(stays)
            assert (await b.beat(stays)).error_code == 0
            assert (await b.beat(stays)).error_code == 0
            b.send(HEARTBEAT, 1, stays)
            await until(lambda: len(broker.heartbeat_purgatory) == 1)

    asyncio.run(main())


SOFTWARE = [
    (("apache-kafka-java", "4.3.1"), True),
    (("apache-kafka-java", "4.0.0"), True),
    (("apache-kafka-java", "4"), True),
    (("apache-kafka-java", "4.0.0-rc2"), True),
    (("apache-kafka-java", "10.1.0"), True),
    (("apache-kafka-java", "3.9.1"), False),
    (("apache-kafka-java", "unknown"), False),
    (("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"), True),
    (("confluent-kafka-dotnet", "2.3.0-rdkafka-2.3.0"), False),
    (("confluent-kafka-go", "1.9.2-rdkafka-2.10.0"), True),
    (("librdkafka", "2.4.0"), True),
    (("librdkafka", "v2.10.0-3-g0abc"), True),
    (("librdkafka", "2.3.0"), False),
    (("kgo", "v1.20.0"), False),
    (("kafka-python", "3.0.12"), False),
    (("sarama", "4.5.0"), False),
    (("apache-kafka-java-fork", "4.3.1"), False),
    (("APACHE-KAFKA-JAVA", "4.3.1"), False),
    (("", ""), False),
    (("apache-kafka-java", ""), False),
    (("apache-kafka-java", "²"), False),
    (("apache-kafka-java", "9" * 5000), True),
]


@pytest.mark.parametrize(("software", "may"), SOFTWARE)
def test_only_listed_clients_are_held(software: tuple[str, str], may: bool) -> None:
    """By name and by numeric version: 2.10 is later than 2.4."""
    assert may_be_held(software, CLIENTS) is may


def test_versions_are_compared_numerically() -> None:
    """A release candidate equals its release; trailing zeros are ignored."""
    least = "x:4.0.1"
    versions = ["4.0", "4.0.0-rc9", "4.0.1", "v4.0.1-rc1", "4.0.1.0", "4.0.10", "4.1", "40"]
    assert [may_be_held(("x", v), (least,)) for v in versions] == [False, False] + [True] * 6
    assert [may_be_held(("x", v), ("x:4.0",)) for v in ("4", "4.0", "4.0.0", "3")] == [
        True,
        True,
        True,
        False,
    ]
    assert may_be_held(("x", "whatever"), ("x",))
    assert not may_be_held(("x", "4.0"), ())


@pytest.mark.parametrize("software", [None, ("kgo", "v1.20.0"), ("apache-kafka-java", "3.9.1")])
def test_unknown_clients_are_never_held(tmp_path: Path, software: tuple[str, str] | None) -> None:
    """Four heartbeats are answered at once."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a = await Line.to(broker, software)
            response = await a.beat(joining("a", "orders"))
            for _ in range(4):
                assert (await a.beat(staying("a", response.member_epoch))).error_code == 0
            assert len(broker.response_cache) == (1 if software is None else 2)

    asyncio.run(main())
