"""Scrape metrics over a socket and parse them with prometheus-client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.broker.running import listening

from konvene.broker.broker import Broker
from konvene.broker.health import Health
from konvene.broker.metrics.server import MetricsServer

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and sorted labels."""

ON = {"konvene.metrics.port": "0"}


@asynccontextmanager
async def measured(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[tuple[Broker, int]]:
    """Start a broker with metrics; yield it and its metrics port."""
    async with listening(path, ON | (settings or {})) as (broker, listener):
        assert broker.meter is not None
        server = MetricsServer(broker, broker.meter, Health(broker, listener))
        await server.listen("127.0.0.1", 0)
        try:
            yield broker, server.port
        finally:
            await server.close()


async def send(port: int, data: bytes) -> bytes:
    """Send bytes, and return all that the server sends until it closes."""
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
    """Return head and body of the response."""
    field = f"Accept: {accept}\r\n" if accept else ""
    answer = await send(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


async def scrape(port: int) -> Samples:
    """Return all samples of a scrape."""
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
    """Return the value of a sample, 0 if it is missing."""
    return found.get((name, tuple(sorted(labels.items()))), 0.0)
