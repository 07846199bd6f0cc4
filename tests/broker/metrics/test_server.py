"""The metrics server: scrapes, content negotiation, invalid requests and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from tests.broker.metrics.scraping import ON, get, measured, samples, scrape, send, value
from tests.broker.running import listening

from konvene.broker.health import Health
from konvene.broker.metrics.server import MAX_CONNECTIONS, MAX_REQUEST_BYTES, MetricsServer


def served(path: Path, ask: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run requests against a broker's metrics port, then check that it still serves."""

    async def main() -> None:
        async with measured(path) as (_, port):
            await ask(port)
            assert await scrape(port)

    asyncio.run(main())


def test_scrape_without_groups(tmp_path: Path) -> None:
    """The page is complete before there are coordinators."""

    async def ask(port: int) -> None:
        found = await scrape(port)
        prefix = "kafka_server_group_coordinator_metrics_"
        assert value(found, prefix + "num_partitions", state="active") == 0
        for protocol in ("classic", "consumer", "share", "streams"):
            assert (prefix + "group_count", (("protocol", protocol),)) in found

    served(tmp_path, ask)


ACCEPTED = [
    ("", "text/plain; version=0.0.4; charset=utf-8"),
    ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
    ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
]


@pytest.mark.parametrize(("accept", "content_type"), ACCEPTED)
def test_format_follows_the_accept_header(tmp_path: Path, accept: str, content_type: str) -> None:
    """The Prometheus text format by default; prometheus-client parses both formats."""

    async def ask(port: int) -> None:
        head, body = await get(port, accept=accept)
        assert f"Content-Type: {content_type}" in head
        assert f"Content-Length: {len(body)}" in head
        if "openmetrics" in content_type:
            assert body.endswith(b"# EOF\n")
            assert [family.name for family in open_metrics(body.decode())]
        else:
            assert samples(body)

    served(tmp_path, ask)


HOSTILE_ACCEPTS = (
    "application/openmetrics-text;version=x",
    "application/openmetrics-text;version=1.0.0;escaping=nonsense",
    "text/plain;version=9999999999999999999999.x.y;escaping=",
    ";;;,,,=",
    "a," * 2000,
)


@pytest.mark.parametrize("accept", HOSTILE_ACCEPTS, ids=lambda text: text[:30])
def test_unknown_accept_header_gets_the_default_format(tmp_path: Path, accept: str) -> None:
    """There is no 406 response."""

    async def ask(port: int) -> None:
        head, body = await get(port, accept=accept)
        assert head.startswith("HTTP/1.1 200 OK")
        assert b"konvene_connections" in body

    served(tmp_path, ask)


def test_head_returns_headers_only(tmp_path: Path) -> None:
    """As HTTP requires."""

    async def ask(port: int) -> None:
        head, body = await get(port, method="HEAD")
        assert head.startswith("HTTP/1.1 200 OK")
        assert int(head.partition("Content-Length: ")[2].split("\r\n")[0]) > 1000
        assert body == b""

    served(tmp_path, ask)


REFUSED = [
    (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"POST / HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"GET http://x/metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"GET /health HTTP/1.1\r\n\r\n", "404 Not Found"),
    (b"POST /health/live HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
    (b"get /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    (b"GET /metrics\r\n\r\n", "400 Bad Request"),
    (b"GET /metrics SPDY/9\r\n\r\n", "400 Bad Request"),
    (b"GET  /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
    (b"\xff\xfe\0\0\r\n\r\n", "400 Bad Request"),
    (b"\r\n\r\n", "400 Bad Request"),
    (
        b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES + b"\r\n\r\n",
        "431 Request Header Fields Too Large",
    ),
    (b"\0" * (MAX_REQUEST_BYTES + 10), "431 Request Header Fields Too Large"),
]


@pytest.mark.parametrize(("request_", "status"), REFUSED, ids=lambda text: str(text)[:30])
def test_invalid_request_has_an_error_status(tmp_path: Path, request_: bytes, status: str) -> None:
    """One response with one line of text, and the connection is closed."""

    async def ask(port: int) -> None:
        answer = await send(port, request_)
        assert answer.startswith(f"HTTP/1.1 {status}\r\n".encode())
        where = "Metrics are at /metrics, health at /health/live and /health/ready."
        assert answer.endswith(f"{status[4:]}. {where}\n".encode())
        assert b"Connection: close\r\n" in answer

    served(tmp_path, ask)


def test_query_string_is_ignored(tmp_path: Path) -> None:
    """Prometheus may add parameters."""

    async def ask(port: int) -> None:
        head, _ = await get(port, "/metrics?name[]=up")
        assert head.startswith("HTTP/1.1 200 OK")

    served(tmp_path, ask)


def test_incomplete_request_times_out(tmp_path: Path) -> None:
    """Whether the client sends nothing or a part of a request."""

    async def main() -> None:
        async with listening(tmp_path, ON) as (broker, listener):
            assert broker.meter is not None
            server = MetricsServer(broker, broker.meter, Health(broker, listener), timeout_s=0.05)
            await server.listen("127.0.0.1", 0)
            try:
                assert await send(server.port, b"") == b""
                assert await send(server.port, b"GET /metrics HTTP/1.1\r\nHost:") == b""
            finally:
                await server.close()

    asyncio.run(main())


def test_number_of_connections_is_limited(tmp_path: Path) -> None:
    """A connection above the limit is closed at once, until another one ends."""

    async def ask(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        await asyncio.sleep(0.05)
        assert await send(port, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        for reader, writer in idle:
            writer.write_eof()
            await reader.read()
            writer.close()

    served(tmp_path, ask)


def test_concurrent_scrapes_share_one_collection(tmp_path: Path) -> None:
    """Each of them gets a response."""

    async def ask(port: int) -> None:
        heads = await asyncio.gather(*(get(port) for _ in range(MAX_CONNECTIONS)))
        assert {head.partition("\r\n")[0] for head, _ in heads} == {"HTTP/1.1 200 OK"}

    served(tmp_path, ask)


def test_broker_stops_during_a_scrape(tmp_path: Path) -> None:
    """The shutdown does not wait for open connections."""

    async def main() -> None:
        async with measured(tmp_path) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metr")
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()

    asyncio.run(main())


def test_failed_collection_is_an_internal_server_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception is logged, the response is 500, and the next scrape is served."""

    async def ask(port: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("konvene.broker.metrics.exposition.lines", lambda _: 1 / 0)
            head, _ = await get(port)
        assert head.startswith("HTTP/1.1 500 Internal Server Error")

    served(tmp_path, ask)
