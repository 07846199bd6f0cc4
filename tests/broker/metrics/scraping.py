"""A scrape over a socket, read by prometheus-client's own parser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.broker.metrics.server import MetricsServer

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and labels, which are in order."""

ON = {"konvene.metrics.port": "0"}


@asynccontextmanager
async def measured(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[tuple[Broker, int]]:
    """A broker with its metrics, and the port where they are."""
    async with running(path, ON | (settings or {})) as broker:
        assert broker.meter is not None
        server = MetricsServer(broker, broker.meter)
        await server.listen("127.0.0.1", 0)
        try:
            yield broker, server.port
        finally:
            await server.close()


async def send(port: int, data: bytes) -> bytes:
    """Send bytes; all that comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def get(
    port: int, target: str = "/metrics", accept: str = "", method: str = "GET"
) -> tuple[str, bytes]:
    """The head of the answer and its body."""
    field = f"Accept: {accept}\r\n" if accept else ""
    answer = await send(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


async def scrape(port: int) -> Samples:
    """What is served now."""
    head, body = await get(port)
    assert head.startswith("HTTP/1.1 200 OK\r\n"), head
    return samples(body)


def samples(body: bytes) -> Samples:
    """Return all samples of a page; checks that none is repeated."""
    found: Samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    """One sample; 0 where it is not there."""
    return found.get((name, tuple(sorted(labels.items()))), 0.0)
