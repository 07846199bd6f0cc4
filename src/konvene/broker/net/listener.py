"""The listener: accepts connections, and looks after them while they are idle."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.net.connection import Connection
from konvene.log.config import LONG_MAX
from konvene.log.errors import LogError

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

LOOPBACK = "localhost"


class Listener:
    """One listener of a broker. `accept` makes what speaks with a client: by itself a `Connection`."""

    def __init__(self, broker: Broker, accept: Callable[[], asyncio.BaseProtocol] | None = None) -> None:
        self._broker = broker
        self._accept = accept or (lambda: Connection(broker))
        self._servers: list[asyncio.Server] = []
        self._chores: list[asyncio.Task[None]] = []
        self.port = 0

    def __repr__(self) -> str:
        return f"<server on port {self.port}: {len(self._broker.connections)} connections>"

    async def listen(self, host: str, port: int) -> None:
        """Accept connections. Raises OSError where the address cannot be had."""
        if host == LOOPBACK:
            await self._listen_at("127.0.0.1", port)
            try:
                await self._listen_at("::1", self.port)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        else:
            await self._listen_at(host or None, port)
        self._broker.cleaning.start()
        self._chores = [self._broker.loop.create_task(chore()) for chore in (self._do_chores, self._flush)]

    async def _listen_at(self, host: str | None, port: int) -> None:
        broker = self._broker
        server = await broker.loop.create_server(
            self._accept,
            host,
            port,
            backlog=broker.config["socket.listen.backlog.size"],
            reuse_address=True,
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    async def _flush(self) -> None:
        """Every `log.flush.scheduler.interval.ms`, what has waited for longer than its topic's `flush.ms`."""
        broker = self._broker
        every_ms = broker.config["log.flush.scheduler.interval.ms"]
        while every_ms < LONG_MAX:
            await asyncio.sleep(every_ms / 1000)
            now_ms = broker.wall_clock_ms()
            for partition in [p for p in broker.partitions if p.is_due(now_ms)]:
                with contextlib.suppress(LogError):  # The log is offline, and has said so.
                    await partition.sync()

    async def _do_chores(self) -> None:
        """Close idle connections, let retention work."""
        broker = self._broker
        idle_s = broker.config["connections.max.idle.ms"] / 1000
        every_s = broker.config["log.retention.check.interval.ms"] / 1000
        next_retention = broker.loop.time() + every_s
        checkpoint_s = broker.config["log.flush.offset.checkpoint.interval.ms"] / 1000
        next_checkpoint = broker.loop.time() + checkpoint_s
        while True:
            await asyncio.sleep(min(idle_s, every_s, 10.0) if idle_s > 0 else min(every_s, 10.0))
            now = broker.loop.time()
            if idle_s > 0:
                for connection in list(broker.connections):
                    connection.close_if_idle(now - idle_s)
            if now >= next_retention:
                next_retention = now + every_s
                await broker.retain()
            if now >= next_checkpoint:
                next_checkpoint = now + checkpoint_s
                await broker.checkpoint()

    async def close(self) -> None:
        self._broker.cleaning.stop()
        for chore in self._chores:
            chore.cancel()
        for server in self._servers:
            server.close()
