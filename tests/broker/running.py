"""A broker in the test's own process, on a free port, with its data in a temporary folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from konvene.broker.app import open_directory
from konvene.broker.broker import Broker
from konvene.broker.net.socket_server import SocketServer
from konvene.configs import BrokerConfig

QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


@asynccontextmanager
async def running(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Broker]:
    """Start a broker, yield it, and shut it down cleanly at the end."""
    async with listening(path, settings) as (broker, _):
        yield broker


@asynccontextmanager
async def listening(
    path: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Broker, SocketServer]]:
    """Start a broker; yield it and its listener."""
    config, _ = BrokerConfig.load(overrides=list((QUICK | (settings or {})).items()))
    broker = Broker(config, open_directory(path, config["node.id"]), asyncio.get_running_loop())
    server = broker.socket_server()
    await broker.start()
    await server.listen("127.0.0.1", 0)
    try:
        yield broker, server
    finally:
        await server.close()
        await broker.stop()


async def exchange(port: int, frame: bytes) -> bytes:
    """Send one frame on a new connection; return the response without its length, b"" if it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return b""
    finally:
        writer.close()
