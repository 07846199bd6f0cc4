"""Connections of a process to clusters, kept between the tasks and triggers that it runs.

Spark reuses worker processes: a connection, with its TLS and SASL handshakes and metadata, outlives a task.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from konvene.client.net.cluster import Cluster
from konvene.pipeline.sources.client_config import ClientConfig
from konvene.pipeline.sources.live import in_turn

__all__ = ["Connection", "connection"]

T = TypeVar("T")


class Connection:
    """A cluster, for synchronous code of one thread."""

    def __init__(self, servers: str, client: ClientConfig) -> None:
        self.cluster = Cluster(servers, client.client_settings())
        self._runner = asyncio.Runner()
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"Connection({self.cluster!r})"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
        return self._runner.run(work)

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        return in_turn(items, self._runner)

    def close(self) -> None:
        self._runner.run(self.cluster.close())
        self._runner.close()


_open: dict[tuple[str, ClientConfig], Connection] = {}


def connection(servers: str, client: ClientConfig) -> Connection:
    """Return this process's connection to a cluster, opened at the first call."""
    key = (servers, client)
    if key not in _open:
        _open[key] = Connection(servers, client)
    return _open[key]
