"""Limits how fast connections are accepted, as Kafka's acceptors: KIP-402 and KIP-612.

    max.connection.creation.rate                           connections per second of the broker
    listener.name.<listener>.max.connection.creation.rate  those of one listener
    connection_creation_rate (quota of the entity ip)      those of one address

A listener accepts its connections one after another. One that exceeds the rate of the broker or listener
waits for its throttle time, at most one window, and so do all behind it. One that exceeds the rate of its
address is not served: it is closed after its throttle time, and does not count for any rate.

Nothing is read from a connection that waits. As many connections of a listener may wait as would wait in its
backlog in Kafka (`socket.listen.backlog.size`); further ones are closed at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from konvene.broker.net.host_names import address_literal, addresses_of
from konvene.configs.broker.table import LISTENER
from konvene.security.hosts import java_address
from konvene.security.quotas.entities import CONNECTION_CREATION_RATE, IP, QuotaEntity
from konvene.security.quotas.rates import QuotaWindows, Rate, rate_throttle_ms
from konvene.security.quotas.sensors import RateSensor, Sensors

if TYPE_CHECKING:
    from konvene.configs import BrokerConfig

__all__ = ["ConnectionAdmission", "ConnectionRates", "NewConnection"]

log = logging.getLogger("konvene.connection")

RATE = "max.connection.creation.rate"
UNLIMITED = 2**31 - 1
"""Kafka's default of all three rates."""

MAX_DELAYED = 1_000
"""Number of throttled connections above which further ones are closed at once."""


class ConnectionRates:
    """The rates of new connections: of the broker, of each listener, and of each address with a quota."""

    def __init__(self, config: Callable[[], BrokerConfig], clock_ms: Callable[[], int]) -> None:
        static = config()
        self._config, self._clock_ms = config, clock_ms
        self._windows = QuotaWindows(static["quota.window.num"], static["quota.window.size.seconds"] * 1000)
        self._broker = Rate(self._windows)
        self._listeners: dict[str, Rate] = {}
        self._addresses: Sensors[RateSensor] = Sensors(self._windows, RateSensor)
        self._limits: dict[str, float] = {}
        self._default_limit: float = UNLIMITED
        self._resolving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<connection rates of {len(self._addresses)} addresses>"

    def is_limited(self, listener: str) -> bool:
        """Return True if any limit may apply to a new connection of a listener."""
        return (
            self._listener_limit(listener) < UNLIMITED
            or self._config()["max.connection.creation.rate"] < UNLIMITED
            or self._default_limit < UNLIMITED
            or bool(self._limits)
        )

    def update(
        self, quotas: Iterable[tuple[QuotaEntity, Mapping[str, float]]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Replace the limits of addresses by those of the quotas; names of hosts are resolved soon."""
        limits = {
            name: values[CONNECTION_CREATION_RATE]
            for ((kind, name), *_), values in quotas
            if kind == IP and CONNECTION_CREATION_RATE in values
        }
        self._default_limit = limits.pop(None, UNLIMITED)
        hosts = {name: limit for name, limit in limits.items() if name is not None}
        self._limits = {address: limit for host, limit in hosts.items() if (address := address_literal(host))}
        names = {host: limit for host, limit in hosts.items() if address_literal(host) is None}
        if self._resolving is not None:
            self._resolving.cancel()
        self._resolving = loop.create_task(self._resolve(names, loop)) if names else None

    async def _resolve(self, names: Mapping[str, float], loop: asyncio.AbstractEventLoop) -> None:
        for host, limit in names.items():
            addresses = await addresses_of(loop, host)
            if addresses:
                self._limits[addresses[0]] = limit
            else:
                log.warning("the quota of %s does not apply: it cannot be resolved", host)

    def record(self, listener: str) -> int:
        """Count a new connection, and return for how long the listener has to wait, in ms."""
        now_ms = self._clock_ms()
        throttle_ms = 0
        for rate, limit in self._rates(listener):
            rate.record(1, now_ms)
            throttle_ms = max(throttle_ms, rate_throttle_ms(rate, limit, now_ms))
        return min(throttle_ms, self._windows.size_ms)

    def record_address(self, listener: str, address: str) -> int:
        """Count a connection of an address. Return 0, or the throttle time in ms if it exceeds the quota.

        A connection that exceeds it does not count, neither for the listener nor for the broker."""
        limit = self._limits.get(address, self._default_limit)
        if limit >= UNLIMITED:
            return 0
        now_ms = self._clock_ms()
        sensor, _ = self._addresses.of("", address, now_ms)
        sensor.rate.record(1, now_ms)
        throttle_ms = min(rate_throttle_ms(sensor.rate, limit, now_ms), self._windows.size_ms)
        if throttle_ms:
            sensor.rate.record(-1, now_ms)
            for rate, _ in self._rates(listener):
                rate.record(-1, now_ms)
        return throttle_ms

    def remove_unused_sensors(self) -> None:
        """Remove the sensors of addresses that did not connect for an hour."""
        self._addresses.remove_unused(self._clock_ms())

    def _rates(self, listener: str) -> tuple[tuple[Rate, float], tuple[Rate, float]]:
        if listener not in self._listeners:
            self._listeners[listener] = Rate(self._windows)
        return (
            (self._broker, self._config()["max.connection.creation.rate"]),
            (self._listeners[listener], self._listener_limit(listener)),
        )

    def _listener_limit(self, listener: str) -> float:
        name, config = f"{LISTENER}{listener.lower()}.{RATE}", self._config()
        return float(config[name]) if name in config else UNLIMITED


class NewConnection(Protocol):
    """A connection that waits to be accepted."""

    def accept(self) -> None:
        """Serve the connection from now on."""

    def abort(self) -> None:
        """Close the connection without having served it."""


class ConnectionAdmission:
    """Accepts the new connections of each listener, one after another, as fast as the rates permit."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: Callable[[], BrokerConfig], rates: ConnectionRates
    ) -> None:
        self._loop, self._config = loop, config
        self.rates = rates
        self._waiting: dict[str, deque[tuple[NewConnection, str]]] = {}
        """Connections of each listener with their addresses; the first one is being throttled."""
        self._delayed: dict[NewConnection, asyncio.TimerHandle] = {}
        """Connections that are not served, and are closed later."""

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<{waiting} connections wait, {len(self._delayed)} are throttled>"

    def admit(self, connection: NewConnection, listener: str, host: str) -> None:
        """Accept a connection in turn. `host`: a slash and the address."""
        waiting = self._waiting.setdefault(listener, deque())
        if len(waiting) >= self._config()["socket.listen.backlog.size"] > 0:
            log.warning("%s: rejected: %s connections of listener %s wait", host, len(waiting), listener)
            connection.abort()
            return
        waiting.append((connection, java_address(host.removeprefix("/"))))
        if len(waiting) == 1:
            self._accept(listener)

    def _accept(self, listener: str) -> None:
        """Accept the waiting connections of a listener until one has to wait for its throttle time."""
        while self._waiting[listener]:
            throttle_ms = self.rates.record(listener)
            if throttle_ms:
                self._loop.call_later(throttle_ms / 1000, self._throttled, listener)
                return
            self._accept_first(listener)

    def _throttled(self, listener: str) -> None:
        if self._waiting[listener]:  # Else the broker is stopping.
            self._accept_first(listener)
            self._accept(listener)

    def _accept_first(self, listener: str) -> None:
        connection, address = self._waiting[listener].popleft()
        throttle_ms = self.rates.record_address(listener, address)
        if not throttle_ms:
            connection.accept()
        elif len(self._delayed) >= MAX_DELAYED:
            connection.abort()
        else:
            log.debug("/%s: throttled: closed after %s ms", address, throttle_ms)
            timer = self._loop.call_later(throttle_ms / 1000, self._close_delayed, connection)
            self._delayed[connection] = timer

    def _close_delayed(self, connection: NewConnection) -> None:
        del self._delayed[connection]
        connection.abort()

    def close(self) -> None:
        """Close all connections that were not accepted."""
        for waiting in self._waiting.values():
            while waiting:
                waiting.popleft()[0].abort()
        for connection, timer in list(self._delayed.items()):
            timer.cancel()
            self._close_delayed(connection)
