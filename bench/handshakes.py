"""Load of short connections: connect, a full TLS handshake, ApiVersions, close. And many idle ones.

Connections run side by side in one thread, on epoll. They come from several loopback addresses, so that ports
of closed connections do not run out. No TLS session is resumed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

from bench.secured import Endpoint
from bench.wire import HOST, frame_of
from konvene.messages.api_versions import ApiVersionsRequest

AT_A_TIME = 16
ADDRESSES = 32
READ_BYTES = 1 << 14
WITHIN_S = 300.0
API_VERSIONS = frame_of(ApiVersionsRequest(client_software_name="bench", client_software_version="1"))

Done = Callable[[socket.socket], None]
"""Called with each connection that has received its response."""


class ShortConnections:
    """Clients that connect to one listener, send ApiVersions, and leave the connection to `done`."""

    def __init__(self, endpoint: Endpoint, done: Done | None = None) -> None:
        self._endpoint = endpoint
        self._done = done or close_politely
        self._epoll = select.epoll()
        self._numbers = itertools.count()
        self._waiting: dict[int, Iterator[int]] = {}
        self.count = 0
        """Connections that have received their response."""

    def __repr__(self) -> str:
        return f"<{self.count} connections to port {self._endpoint.port}, {len(self._waiting)} under way>"

    def go_on(self, seconds: float, at_most: int = 1 << 62) -> tuple[int, int]:
        """Connect for this many seconds; return the number of connections, and 0 bytes of records.

        Stops when `at_most` connections have been made in total."""
        before, until = self.count, time.perf_counter() + seconds
        while self.count < at_most and (now := time.perf_counter()) < until:
            while len(self._waiting) < min(AT_A_TIME, at_most - self.count):
                self._connect()
            for descriptor, _ in self._epoll.poll(until - now):
                self._advance(descriptor)
        return self.count - before, 0

    def _connect(self) -> None:
        connected = socket.socket()
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.bind((f"127.0.0.{2 + next(self._numbers) % ADDRESSES}", 0))
        connected.connect_ex((HOST, self._endpoint.port))
        self._epoll.register(connected, select.EPOLLOUT)
        self._waiting[connected.fileno()] = self._steps(connected)

    def _advance(self, descriptor: int) -> None:
        """Run a connection until it waits again; `done` owns it at its end."""
        try:
            self._epoll.modify(descriptor, next(self._waiting[descriptor]))
        except StopIteration:
            del self._waiting[descriptor]

    def _steps(self, connected: socket.socket) -> Iterator[int]:
        """Yield the events that a connection waits for."""
        descriptor = connected.fileno()
        if self._endpoint.tls is not None:
            connected = tls = self._endpoint.tls.wrap_socket(connected, do_handshake_on_connect=False)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    yield select.EPOLLIN
        connected.send(API_VERSIONS)
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            try:
                more = connected.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                yield select.EPOLLIN
                continue
            if not more:
                raise ConnectionError("the broker closed the connection")
            received += more
        self._epoll.unregister(descriptor)
        self.count += 1
        self._done(connected)

    def close(self) -> None:
        """Abandon the connections under way."""
        self._waiting.clear()
        self._epoll.close()


def close_politely(connected: socket.socket) -> None:
    """Close a connection, over TLS with a close_notify first."""
    if isinstance(connected, ssl.SSLSocket):
        with contextlib.suppress(OSError):  # The broker's own close_notify has not arrived yet.
            connected.unwrap()
    connected.close()


@contextlib.contextmanager
def idle_connections(endpoint: Endpoint, count: int) -> Iterator[None]:
    """Keep `count` connections open that have sent ApiVersions; this process keeps no TLS state of them."""
    descriptors: list[int] = []
    clients = ShortConnections(endpoint, lambda connected: descriptors.append(connected.detach()))
    try:
        with contextlib.closing(clients):
            clients.go_on(WITHIN_S, count)
        if clients.count < count:
            raise TimeoutError(f"{clients!r} within {WITHIN_S:g} s, not {count}")
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
