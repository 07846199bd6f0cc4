"""Who may connect: `max.connections`, `max.connections.per.ip` and its exceptions.

A connection too many is closed at once. It has sent nothing yet, so nothing is lost, and those that are
being served go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any


class Admission:
    """Counts connections by host. A host is an address with a slash in front, as Kafka writes it."""

    def __init__(self, config: Callable[[], Any]) -> None:
        self._config = config
        self._hosts: Counter[str] = Counter()
        self._total = 0

    def __repr__(self) -> str:
        return f"<admission: {self._total} connections from {len(self._hosts)} hosts>"

    def refusal(self, host: str) -> str | None:
        """Why one more connection from there is too many; None if it may come in."""
        config = self._config()
        most = config["max.connections"]
        if self._total >= most:
            return f"there are {self._total} connections, and max.connections is {most}"
        most = _exceptions(config["max.connections.per.ip.overrides"]).get(
            host.lstrip("/"), config["max.connections.per.ip"]
        )
        if self._hosts[host] >= most:
            return f"{self._hosts[host]} are connected from there, and max.connections.per.ip is {most}"
        return None

    def enter(self, host: str) -> None:
        self._total += 1
        self._hosts[host] += 1

    def leave(self, host: str) -> None:
        self._total -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def _exceptions(text: str | None) -> Mapping[str, int]:
    """`host:count,host:count` as a table."""
    rows = (part.rpartition(":") for part in (text or "").split(",") if part)
    return {host: int(count) for host, _, count in rows}
