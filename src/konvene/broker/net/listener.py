"""Accepts connections, closes idle ones, and runs the periodic maintenance of logs while it listens."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.net.connection import Connection

if TYPE_CHECKING:
    from konvene.broker.net.network import Network
    from konvene.broker.storage.log_maintenance import LogMaintenance

LOOPBACK = "localhost"

MAX_PAUSE_S = 10.0
"""Longest pause between two rounds of periodic work."""


class Listener:
    """A listener on one address. `accept` creates each connection's protocol, by default a `Connection`."""

    def __init__(
        self,
        network: Network,
        log_maintenance: LogMaintenance,
        accept: Callable[[], asyncio.BaseProtocol] | None = None,
    ) -> None:
        self._network = network
        self._log_maintenance = log_maintenance
        self._accept = accept or (lambda: Connection(network))
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0

    def __repr__(self) -> str:
        return f"<server on port {self.port}: {len(self._network.connections)} connections>"

    @property
    def is_listening(self) -> bool:
        return bool(self._servers) and all(server.is_serving() for server in self._servers)

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept connections, and start the log cleaner and the periodic work.

        Raises OSError if the address is not available."""
        if host == LOOPBACK:
            await self._listen_at("127.0.0.1", port)
            try:
                await self._listen_at("::1", self.port)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        else:
            await self._listen_at(host or None, port)
        self._log_maintenance.cleaner.start()
        loop, flush = self._network.loop, self._log_maintenance.flush_periodically
        self._tasks = [loop.create_task(work()) for work in (self._work_periodically, flush)]

    async def _listen_at(self, host: str | None, port: int) -> None:
        server = await self._network.loop.create_server(
            self._accept,
            host,
            port,
            backlog=self._network.settings.config["socket.listen.backlog.size"],
            reuse_address=True,
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    async def _work_periodically(self) -> None:
        """Close idle connections, apply retention, write checkpoints; each at its own interval."""
        network, config = self._network, self._network.settings.config
        idle_s = config["connections.max.idle.ms"] / 1000
        retention_s = config["log.retention.check.interval.ms"] / 1000
        next_retention = network.loop.time() + retention_s
        checkpoint_s = config["log.flush.offset.checkpoint.interval.ms"] / 1000
        next_checkpoint = network.loop.time() + checkpoint_s
        pause_s = min(retention_s, MAX_PAUSE_S)
        while True:
            await asyncio.sleep(min(idle_s, pause_s) if idle_s > 0 else pause_s)
            now_s = network.loop.time()
            if idle_s > 0:
                for connection in list(network.connections):
                    connection.close_if_idle(now_s - idle_s)
            if now_s >= next_retention:
                next_retention = now_s + retention_s
                await self._log_maintenance.retain()
            if now_s >= next_checkpoint:
                next_checkpoint = now_s + checkpoint_s
                await self._log_maintenance.checkpoint()

    async def close(self) -> None:
        self._log_maintenance.cleaner.stop()
        for task in self._tasks:
            task.cancel()
        for server in self._servers:
            server.close()
