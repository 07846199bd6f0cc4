"""An HTTP server for Prometheus and for health checks: answers one GET or HEAD request per connection.

    /metrics       the metrics, by prometheus-client; 501 if that is not installed
    /health/live   200: the process answers
    /health/ready  200, or 503 while the broker is not ready, with the reasons

Health is answered as JSON: `{"status": "not ready", "reasons": ["the broker is stopping"]}`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from konvene.broker.metrics import exposition
from konvene.broker.metrics.group_gauges import collect_gauges
from konvene.broker.metrics.tables.broker import Snapshot

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.health import Health
    from konvene.broker.metrics.meter import Meter

log = logging.getLogger("konvene.metrics")

PATH = "/metrics"
LIVE = "/health/live"
READY = "/health/ready"
LOOPBACK = "localhost"
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
END = b"\r\n\r\n"

MAX_CONNECTIONS = 16
MAX_REQUEST_BYTES = 8 * 1024
TIMEOUT_S = 10.0

HttpResponse = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""


class MetricsServer:
    """The HTTP server of a broker's metrics and health.

    A connection is closed after `timeout_s` at the latest."""

    def __init__(self, broker: Broker, meter: Meter, health: Health, timeout_s: float = TIMEOUT_S) -> None:
        self._broker = broker
        self._meter = meter
        self._health = health
        self._timeout_s = timeout_s
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self._collecting: asyncio.Task[exposition.Page] | None = None
        self._host = LOOPBACK
        self.port = 0

    def __repr__(self) -> str:
        return f"<metrics on port {self.port}: {len(self._open)} connections>"

    @property
    def url(self) -> str:
        """Return the URL of the metrics page."""
        host = self._host or LOOPBACK
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}{PATH}"

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept connections. Raises OSError if the address is not available."""
        self._host = host
        if host != LOOPBACK:
            await self._listen_at(host or None, port)
            return
        await self._listen_at("127.0.0.1", port)
        try:
            await self._listen_at("::1", self.port)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise

    async def _listen_at(self, host: str | None, port: int) -> None:
        server = await asyncio.start_server(
            self._accept, host, port, limit=MAX_REQUEST_BYTES, reuse_address=True
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        running = [*self._open, *([self._collecting] if self._collecting is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # --- a connection ---

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                writer.write(await self._respond(reader))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # The client disconnected or does not read.
        finally:
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(END)
        except asyncio.LimitOverrunError:
            return _encoded(_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        request_line, *fields = head[: -len(END)].decode("latin-1").split("\r\n")
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _encoded(_error(HTTPStatus.BAD_REQUEST))
        method, target, _ = parts
        path = target.partition("?")[0]
        if path not in (PATH, LIVE, READY):
            response = _error(HTTPStatus.NOT_FOUND)
        elif method not in ("GET", "HEAD"):
            response = _error(HTTPStatus.METHOD_NOT_ALLOWED)
        elif path == PATH:
            response = await self._page(_accepts(fields))
        else:
            response = _health_response(self._health.reasons() if path == READY else None)
        return _encoded(response, body=method != "HEAD")

    async def _page(self, accept: str) -> HttpResponse:
        if not exposition.is_installed():
            return HTTPStatus.NOT_IMPLEMENTED, PLAIN, f"{exposition.MISSING}\n".encode()
        if self._health.stopping:
            return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"The broker is stopping.\n"
        try:
            if self._collecting is None or self._collecting.done():
                self._collecting = asyncio.get_running_loop().create_task(self._collect())
            page = await asyncio.shield(self._collecting)
            body, content_type = await asyncio.to_thread(exposition.text, page, accept)
        except Exception:
            log.exception("metrics could not be read")
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)
        return HTTPStatus.OK, content_type, body

    async def _collect(self) -> exposition.Page:
        gauges = await collect_gauges(self._broker, self._meter)
        return exposition.lines(Snapshot(self._broker, self._meter, gauges))


def _accepts(fields: list[str]) -> str:
    """Return the value of the `Accept` header in header lines; empty if there is none."""
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "accept":
            return value.strip()
    return ""


def _health_response(reasons: list[str] | None) -> HttpResponse:
    """Return the answer of `/health/ready` with the reasons why it is not, or of `/health/live` for None."""
    document: dict[str, object] = {"status": "live" if reasons is None else "ready"}
    if reasons:
        document = {"status": "not ready", "reasons": reasons}
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return status, JSON, json.dumps(document).encode() + b"\n"


def _error(status: HTTPStatus) -> HttpResponse:
    return status, PLAIN, f"{status.phrase}. Metrics are at {PATH}, health at {LIVE} and {READY}.\n".encode()


def _encoded(response: HttpResponse, *, body: bool = True) -> bytes:
    status, content_type, content = response
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(content)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")
