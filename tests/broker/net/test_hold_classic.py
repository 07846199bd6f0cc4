"""Heartbeats of classic members are held for less than their observed interval (R3).

The clock of the connections is set by the test; holds end by the real clock, which none reaches here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.holds import responsive
from tests.broker.net.raw_connections import JAVA, RDKAFKA, Direct, until

from konvene.broker.broker import Broker
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.sync_group import SyncGroupRequest
from konvene.runtime.coordinator import RequestContext

HEARTBEAT, LEAVE_GROUP = 12, 13
KAFKA_PYTHON = ("kafka-python", "3.0.12")


class Clock:
    """An event loop with a clock that the test sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = 1000.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self.now


class Classic:
    """A stable classic group of one member, and the connection of its heartbeats."""

    def __init__(self, broker: Broker, software: tuple[str, str]) -> None:
        self.broker = broker
        self.clock = Clock(broker.loop)
        broker.network.loop = self.clock  # type: ignore[assignment]
        self.passed: list[int] = []
        self.line = Direct(broker, self.passed, software)
        self.request = HeartbeatRequest()

    async def join(self, protocol: str = "range", instance: str | None = None) -> None:
        coordinator: Any = self.broker.groups.of("g")
        join = joining(protocol).replace(group_instance_id=instance)
        joined = await coordinator.submit(
            join, RequestContext(api_version=5 if instance else 3, fresh_ids=("1",))
        )
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        await coordinator.submit(sync, RequestContext(5))
        self.request = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)

    def beat(self, after_s: float = 3.0) -> float:
        """Send a heartbeat after this time. Return the duration of its hold, 0 if it is answered."""
        self.clock.now += after_s
        self.line.send(HEARTBEAT, 4, self.request)
        if self.line.connection.is_idle:
            assert len(self.broker.heartbeat_purgatory) == 0
            return 0
        assert len(self.broker.heartbeat_purgatory) == 1
        loop = asyncio.get_running_loop()
        return round(self.broker.heartbeat_purgatory.ends[self.line.connection] - loop.time(), 1)

    def release(self, after_s: float) -> None:
        self.clock.now += after_s
        self.broker.heartbeat_purgatory.release(self.line.connection)


def joining(protocol: str = "range") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name=protocol, metadata=b""),),
    )


def with_classic_group(
    path: Path, scenario: Callable[[Classic], Any], software: tuple[str, str] = JAVA, **more: Any
) -> None:
    async def main() -> None:
        settings = {name: more.pop(name) for name in list(more) if name.startswith("konvene")}
        async with responsive(path, **settings) as broker:
            group = Classic(broker, software)
            await group.join(**more)
            await scenario(group)
            broker.network.loop = asyncio.get_running_loop()

    asyncio.run(main())


@pytest.mark.parametrize("software", [JAVA, RDKAFKA, KAFKA_PYTHON])
def test_heartbeat_is_held_once_the_interval_is_learnt(tmp_path: Path, software: tuple[str, str]) -> None:
    """After a decided heartbeat and three intervals, for nine tenths of the interval."""

    async def scenario(group: Classic) -> None:
        assert [group.beat() for _ in range(4)] == [0, 0, 0, 2.7]

    with_classic_group(tmp_path, scenario, software)


def test_shortest_interval_limits_the_hold(tmp_path: Path) -> None:
    """Late heartbeats and gaps after a held response do not lengthen the hold; a gap after a prompt response
    may."""

    async def scenario(group: Classic) -> None:
        assert [group.beat(after) for after in (3, 9, 1, 5)] == [0, 0, 0, 0.9]
        group.release(0.9)
        assert group.beat(4) == 0.9
        group.release(0.1)
        assert [group.beat(3)] == [0.9]
        group.release(0.0)
        group.beat(3)
        group.release(0.0)
        assert group.beat(3) == 2.7

    with_classic_group(tmp_path, scenario)


def test_hold_may_be_shorter_than_a_timer_slot(tmp_path: Path) -> None:
    """A client with an interval of a few milliseconds: each hold ends."""

    async def scenario(group: Classic) -> None:
        for _ in range(4):
            group.beat(0.004)
        for _ in range(20):
            count_before = len(group.passed)
            await until(lambda: len(group.passed) == count_before + 1)  # noqa: B023 - awaited before the next iteration
            group.beat(0.004)

    with_classic_group(tmp_path, scenario)


def test_hold_has_a_maximum(tmp_path: Path) -> None:
    """4.5 s, whatever the interval; 0.8 s for a static member."""

    async def scenario(group: Classic) -> None:
        assert [group.beat(60) for _ in range(4)] == [0, 0, 0, 4.5]

    with_classic_group(tmp_path, scenario)


def test_hold_of_a_static_member_is_short(tmp_path: Path) -> None:
    """Even if its heartbeats have no instance id."""

    async def scenario(group: Classic) -> None:
        assert [group.beat() for _ in range(4)] == [0, 0, 0, 0.8]

    with_classic_group(tmp_path, scenario, instance="desk")


@pytest.mark.parametrize(
    ("software", "more"),
    [
        (("kgo", "v1.20.0"), {}),
        (("sarama", "1.45.0"), {}),
        (("apache-kafka-java", "3.9.0"), {}),
        (JAVA, {"protocol": "stream"}),
        (JAVA, {"konvene_heartbeat_policy": "kafka"}),
        (JAVA, {"konvene_heartbeat_hold_enable": "false"}),
        (JAVA, {"konvene_heartbeat_hold_classic_clients": "librdkafka"}),
    ],
)
def test_unsuitable_clients_are_never_held(
    tmp_path: Path, software: tuple[str, str], more: dict[str, str]
) -> None:
    """Unknown clients, Kafka Streams, and all clients if holding is disabled."""

    async def scenario(group: Classic) -> None:
        assert [group.beat() for _ in range(9)] == [0] * 9

    with_classic_group(tmp_path, scenario, software, **more)


def test_rebalance_releases_the_heartbeat(tmp_path: Path) -> None:
    """A member joins: the held one gets REBALANCE_IN_PROGRESS at once, and is not held meanwhile."""

    async def scenario(group: Classic) -> None:
        for _ in range(4):
            group.beat()
        count_before = len(group.passed)
        coordinator: Any = group.broker.groups.of("g")
        coordinator.submit(joining(), RequestContext(api_version=3, client_id="d", fresh_ids=("2",)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert (len(group.passed), len(group.broker.heartbeat_purgatory)) == (count_before + 1, 0)
        assert group.line.last_answer().error_code == Errors.REBALANCE_IN_PROGRESS
        assert [group.beat() for _ in range(5)] == [0] * 5

    with_classic_group(tmp_path, scenario)


def test_other_request_releases_the_heartbeat_before_it(tmp_path: Path) -> None:
    """The heartbeat is answered, then the request; the session counts from the response."""

    async def scenario(group: Classic) -> None:
        for _ in range(4):
            group.beat()
        group.passed.clear()
        beat = len(group.line.sent_requests)
        group.line.send(HEARTBEAT, 4, group.request.replace(member_id="x"))
        assert group.passed == [beat, beat + 1]

    with_classic_group(tmp_path, scenario)
