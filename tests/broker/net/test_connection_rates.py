"""Rates of new connections, with the cases of Kafka's `ConnectionQuotasTest`; the clock is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import QUICK, listening

from konvene.broker.net.connection_rates import MAX_DELAYED, ConnectionAdmission, ConnectionRates
from konvene.broker.net.host_names import addresses_of
from konvene.client.admin.admin import Admin
from konvene.client.net.cluster import Cluster
from konvene.configs import BrokerConfig
from konvene.security.quotas.entities import QuotaEntity

RATE = "max.connection.creation.rate"
ONE, TWO = "10.0.0.1", "10.0.0.2"


class Timer:
    """A call that is due at a time, unless it is cancelled."""

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s, self.call = due_s, call

    def cancel(self) -> None:
        self.call = lambda: None


class Clock:
    """A loop whose time is moved by the test."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(self.now_ms / 1000 + delay_s, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    def pass_ms(self, ms: float) -> None:
        """Run what is due until then, in the order of time."""
        end_ms = self.now_ms + ms
        while self.timers:
            timer = min(self.timers, key=lambda timer: timer.due_s)
            if timer.due_s * 1000 > end_ms:
                break
            self.timers.remove(timer)
            self.now_ms = max(self.now_ms, timer.due_s * 1000)
            timer.call()
        self.now_ms = end_ms


class Made:
    """A connection that records when it was accepted or closed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.accepted_ms: float | None = None
        self.closed_ms: float | None = None

    def accept(self) -> None:
        self.accepted_ms = self.clock.now_ms

    def abort(self) -> None:
        self.closed_ms = self.clock.now_ms


class Broker:
    """The acceptors of a broker without sockets."""

    def __init__(self, **settings: str) -> None:
        self.clock = Clock()
        loaded = [(key.replace("__", ".").replace("_", "."), value) for key, value in settings.items()]
        self.config, _ = BrokerConfig.load(overrides=[*QUICK.items(), *loaded])
        self.rates = ConnectionRates(lambda: self.config, lambda: int(self.clock.now_ms))
        self.admission = ConnectionAdmission(self.clock, lambda: self.config, self.rates)  # type: ignore[arg-type]

    def limit(self, *quotas: tuple[str | None, float]) -> None:
        entities: list[tuple[QuotaEntity, dict[str, float]]] = [
            ((("ip", name),), {"connection_creation_rate": limit}) for name, limit in quotas
        ]
        self.rates.update(entities, None)  # type: ignore[arg-type]

    def connect(self, address: str = ONE, listener: str = "PLAINTEXT") -> Made:
        made = Made(self.clock)
        self.admission.admit(made, listener, f"/{address}")
        return made


def test_without_limits_connections_are_not_measured() -> None:
    broker = Broker()
    assert not broker.rates.is_limited("PLAINTEXT")
    broker.limit((ONE, 5))
    assert broker.rates.is_limited("PLAINTEXT")
    broker.limit((None, 5))
    assert broker.rates.is_limited("PLAINTEXT")
    broker.limit()
    assert not broker.rates.is_limited("PLAINTEXT")
    assert Broker(max_connection_creation_rate="9").rates.is_limited("PLAINTEXT")
    own = Broker(listener__name__external__max_connection_creation_rate="9")
    assert own.rates.is_limited("EXTERNAL")
    assert not own.rates.is_limited("PLAINTEXT")


@pytest.mark.parametrize(
    "settings",
    [{"max_connection_creation_rate": "5"}, {"listener__name__plaintext__max_connection_creation_rate": "5"}],
)
def test_connections_above_the_rate_wait_for_their_turn(settings: dict[str, str]) -> None:
    """In the long run the broker, or the listener, accepts as many as it may, in order."""
    broker = Broker(**settings, socket_listen_backlog_size="10000")
    made = [broker.connect() for _ in range(150)]
    assert [one.accepted_ms for one in made[:51]] == [0.0] * 50 + [None]
    broker.clock.pass_ms(60_000)
    accepted = [one.accepted_ms for one in made]
    assert None not in accepted
    assert accepted == sorted(accepted)  # type: ignore[type-var]
    assert 15_000 < (accepted[-1] or 0) < 31_000


def test_a_listener_does_not_wait_for_another_one() -> None:
    broker = Broker(listener__name__slow__max_connection_creation_rate="1")
    slow = [broker.connect(listener="SLOW") for _ in range(12)]
    assert slow[-1].accepted_ms is None
    assert broker.connect(listener="FAST").accepted_ms == 0
    broker.clock.pass_ms(1_001)
    assert slow[10].accepted_ms is not None


def test_no_more_connections_wait_than_in_the_backlog() -> None:
    broker = Broker(max_connection_creation_rate="1", socket_listen_backlog_size="3")
    made = [broker.connect() for _ in range(14)]
    assert [one.closed_ms for one in made] == [None] * 13 + [0.0]
    broker.admission.close()
    assert [one.closed_ms for one in made] == [None] * 10 + [0.0] * 4
    broker.clock.pass_ms(5_000)


def test_a_connection_above_the_rate_of_its_address_is_closed_later() -> None:
    """It does not count; others are served, and those of the address after the last window."""
    broker = Broker()
    broker.limit((ONE, 2), (None, 1_000))
    made = [broker.connect() for _ in range(25)]
    assert [one.accepted_ms for one in made] == [0.0] * 20 + [None] * 5
    assert broker.connect(TWO).accepted_ms == 0
    broker.clock.pass_ms(1_000)
    assert all(one.closed_ms is not None and 0 < one.closed_ms <= 1_000 for one in made[20:])
    assert broker.connect().accepted_ms is None
    broker.clock.pass_ms(10_000)
    assert broker.connect().accepted_ms == 11_000


def test_a_connection_above_the_rate_of_its_address_does_not_count_for_the_broker() -> None:
    broker = Broker(max_connection_creation_rate="10")
    broker.limit((ONE, 1))
    made = [broker.connect() for _ in range(300)]
    assert [one.accepted_ms for one in made].count(0) == 10
    assert broker.connect(TWO).accepted_ms == 0


def test_the_rate_of_an_address_is_changed_and_reset() -> None:
    """Its own quota, the default, none; names of addresses are those that Java writes."""
    broker = Broker()
    broker.limit(("::FFFF:10.0.0.1", 0.1), (None, 2_000))
    broker.connect()
    assert broker.connect().accepted_ms is None
    broker.limit((None, 2_000))
    assert broker.connect().accepted_ms == 0
    broker.limit((None, 0.1))
    assert broker.connect().accepted_ms is None
    broker.limit()
    assert broker.connect().accepted_ms == 0


def test_the_number_of_throttled_connections_is_bounded() -> None:
    broker = Broker()
    broker.limit((ONE, 0.1))
    made = [broker.connect() for _ in range(MAX_DELAYED + 3)]
    assert [one.closed_ms for one in made].count(0) == 2
    assert repr(broker.admission) == "<0 connections wait, 1000 are throttled>"
    broker.admission.close()
    assert [one.closed_ms for one in made].count(None) == 1


def test_names_of_hosts_are_resolved() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await addresses_of(loop, "::ffff:1.2.3.4") == ["1.2.3.4"]
        assert await addresses_of(loop, "localhost")
        assert await addresses_of(loop, "not a host") == []

    asyncio.run(main())


def test_a_throttled_client_is_served_later(tmp_path: Path) -> None:
    """Over sockets: a client of a slow listener waits; one above the rate of its address is not served."""

    async def main() -> None:
        async with listening(tmp_path, {RATE: "1"}) as (broker, server):
            writers = [(await asyncio.open_connection("127.0.0.1", server.port))[1] for _ in range(11)]
            # ApiVersions version 0 on the connection that waits.
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\7\0\0")
            assert (await asyncio.wait_for(reader.readexactly(8), 30))[4:] == b"\0\0\0\7"
            for one in (*writers, writer):
                one.close()
        async with listening(tmp_path) as (broker, server):
            bootstrap = f"127.0.0.1:{server.port}"
            async with Cluster(bootstrap) as cluster:
                await Admin(cluster).alter_client_quotas({"ip": "127.0.0.1"}, {"connection_creation_rate": 1})
            writers = [(await asyncio.open_connection("127.0.0.1", server.port))[1] for _ in range(10)]
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\7\0\0")
            assert await _closed(reader)
            assert len(broker.network.connections) <= 11
            for one in (*writers, writer):
                one.close()

    asyncio.run(main())


async def _closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 30) == b""
    except ConnectionError:
        return True
