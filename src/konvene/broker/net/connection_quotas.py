"""Limits the number of connections: `max.connections`, `max.connections.per.ip` and its overrides.

`listener.name.<listener>.max.connections` limits those of one listener.

A connection above a limit is closed at once, before it has sent anything. Existing connections stay open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from konvene.configs.broker.table import LISTENER

if TYPE_CHECKING:
    from konvene.configs import BrokerConfig


class ConnectionQuotas:
    """Counts connections by host and listener, and checks the limits.

    A host is "/" and an address, as Kafka writes it."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._hosts: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._total = 0

    def __repr__(self) -> str:
        return f"<connection quotas: {self._total} connections from {len(self._hosts)} hosts>"

    @property
    def is_empty(self) -> bool:
        """Return True if no connection is counted."""
        return not (self._total or self._hosts or self._listeners.total())

    def rejection_reason(self, host: str, listener: str = "PLAINTEXT") -> str | None:
        """Return which limit another connection from `host` would exceed, for the log; None if none."""
        config = self._config()
        limit = config["max.connections"]
        if self._total >= limit:
            return f"{self._total} connections are open, and max.connections is {limit}"
        name = f"{LISTENER}{listener.lower()}.max.connections"
        if name in config and self._listeners[listener] >= config[name]:
            return f"{self._listeners[listener]} connections are open, and {name} is {config[name]}"
        limit = _overrides(config["max.connections.per.ip.overrides"]).get(
            host.lstrip("/"), config["max.connections.per.ip"]
        )
        if self._hosts[host] >= limit:
            count = self._hosts[host]
            return f"{count} connections of the host are open, and max.connections.per.ip is {limit}"
        return None

    def connected(self, host: str, listener: str = "PLAINTEXT") -> None:
        self._total += 1
        self._listeners[listener] += 1
        self._hosts[host] += 1

    def disconnected(self, host: str, listener: str = "PLAINTEXT") -> None:
        self._total -= 1
        self._listeners[listener] -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def _overrides(text: str | None) -> Mapping[str, int]:
    """Parse `max.connections.per.ip.overrides`, such as `host:10,host2:20`; return the limits by host."""
    rows = (part.rpartition(":") for part in (text or "").split(",") if part)
    return {host: int(count) for host, _, count in rows}
