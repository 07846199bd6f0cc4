"""Load of short connections: connect, a full TLS handshake, ApiVersions, close. And many idle ones.

The clients are threads with blocking sockets, as the work of a client is in OpenSSL, which runs beside other
threads. Each has a loopback address of its own, so that ports of closed connections do not run out. No TLS
session is resumed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.secured import Endpoint
from bench.wire import Peer, frame_of
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CLIENTS = 8
"""Connections at a time."""
API_VERSIONS = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


class ShortConnections:
    """Clients that connect again and again to one listener while they may."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._may_run = threading.Event()
        self._is_over = False
        self._counts = [0] * CLIENTS
        self._errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<{sum(self._counts)} connections to port {self._endpoint.port}>"

    def go_on(self, seconds: float) -> tuple[int, int]:
        """Connect for this many seconds; return the number of connections, and 0 bytes of records."""
        before = sum(self._counts)
        self._may_run.set()
        time.sleep(seconds)
        self._may_run.clear()
        if self._errors:
            raise self._errors[0]
        return sum(self._counts) - before, 0

    def close(self) -> None:
        self._is_over = True
        self._may_run.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, number: int) -> None:
        frame, source = frame_of(API_VERSIONS), f"127.0.0.{2 + number}"
        try:
            while self._may_run.wait() and not self._is_over:
                connected = self._endpoint.connect(source)
                Peer(self._endpoint.port, connected).exchange(frame)
                close_politely(connected)
                self._counts[number] += 1
        except Exception as error:
            self._errors.append(error)


def close_politely(connected: socket.socket) -> None:
    """Close a connection, over TLS with a close_notify first."""
    if isinstance(connected, ssl.SSLSocket):
        connected.setblocking(False)
        with contextlib.suppress(OSError):  # The broker's own close_notify has not arrived yet.
            connected.unwrap()
    connected.close()


@contextlib.contextmanager
def idle_connections(endpoint: Endpoint, count: int) -> Iterator[None]:
    """Keep `count` connections open that have sent ApiVersions; this process keeps no TLS state of them."""
    descriptors: list[int] = []
    frame = frame_of(API_VERSIONS)

    def connect(number: int) -> None:
        connected = endpoint.connect(f"127.0.0.{2 + number % CLIENTS}")
        Peer(endpoint.port, connected).exchange(frame)
        descriptors.append(connected.detach())

    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            for _ in clients.map(connect, range(count)):
                pass
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
