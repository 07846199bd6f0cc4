"""Rows 3, 59 and 60 of the hostile inputs: connections that are many, silent, slow, or never read.

The tests check the memory of the broker's process, and that another client is served meanwhile. They do not
run against Kafka, which allocates the announced size of a frame and runs out of memory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from tests.broker.hostile.wire import Client, Target, frame, header

from konvene.codec.compile import encode
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.metadata import MetadataRequest

GROWTH_MIB = 60
"""Far below the announced sizes; above what the allocator may have released and take again."""


@pytest.fixture(autouse=True)
def ours(target: Target) -> None:
    if target.is_kafka:
        pytest.skip("Kafka does not survive it")


CONNECTIONS_PER_CHECK = 20
"""Number of hostile connections between two requests of another client."""

CALL = frame(header(16, 4) + encode(ListGroupsRequest(), 4))


@contextmanager
def bounded(target: Target, growth_mib: float = GROWTH_MIB) -> Iterator[Client]:
    """Yield another client; check that it is served before and after, and that memory stays bounded."""
    with target.client() as other:
        assert other.ask(ListGroupsRequest()).error_code == 0
        before = target.rss_mib
        yield other
        assert other.ask(ListGroupsRequest()).error_code == 0
        assert target.rss_mib - before < growth_mib


GARBAGE: list[Callable[[Client], None]] = [
    lambda client: None,
    lambda client: client.send(b"\0"),
    lambda client: client.send(b"\0\0\1\0half a frame"),
    lambda client: client.send(b"\xff" + os.urandom(40)),
    lambda client: client.send(b"GET / HTTP/1.0\r\n\r\n"),
    lambda client: client.send((104_857_600).to_bytes(4, "big") + bytes(1000)),
    lambda client: client.send(CALL),
    lambda client: client.send(CALL * 20),
]
"""What a client sends before it closes the connection without reading a response."""


def test_row_59_ten_thousand_garbage_connections(target: Target) -> None:
    """Connections one after another; another client is served meanwhile."""
    with bounded(target) as other:
        for number in range(10_000):
            with target.client() as client:
                GARBAGE[number % len(GARBAGE)](client)
                if number % 3 == 0:  # Close with a reset instead of FIN.
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if number % CONNECTIONS_PER_CHECK == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


@pytest.mark.parametrize(
    "sent", [b"", b"\0", CALL[:9], CALL], ids=["silent", "a byte", "a part", "a request"]
)
def test_row_59_two_thousand_open_connections(sent: bytes, target: Target) -> None:
    """Open at once, each with no bytes, a partial request, or a response that the client does not read."""
    with bounded(target) as other, ExitStack() as held:
        for number in range(2_000):
            client = held.enter_context(target.client())
            client.send(sent)
            if number % CONNECTIONS_PER_CHECK == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


def test_row_03_many_frames_that_announce_a_hundred_megabytes(target: Target) -> None:
    """Memory is allocated only as bytes arrive."""
    with bounded(target) as other, ExitStack() as held:
        for number in range(200):
            client = held.enter_context(target.client())
            client.send((104_857_600).to_bytes(4, "big") + header(0, 9))
            client.send(bytes(100))
            if number % CONNECTIONS_PER_CHECK == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


def test_row_03_a_slow_sender_is_served(target: Target) -> None:
    """A request that arrives byte by byte receives its response; other clients are served meanwhile."""
    with bounded(target) as other, target.client() as slow:
        for byte in CALL:
            slow.send(bytes([byte]))
            assert other.ask(ListGroupsRequest()).error_code == 0
        assert slow.frame() is not None


def test_row_60_clients_that_never_read(target: Target) -> None:
    """Unread responses stop the broker from reading requests; a client that reads later receives them."""
    for number in range(10):
        target.topic(f"hostile-answers-{number}", 20)
    request = frame(header(3, 12) + encode(MetadataRequest(topics=None), 12))
    with bounded(target, 60) as other, ExitStack() as held:
        silent = [held.enter_context(target.client()) for _ in range(3)]
        sent = [0] * len(silent)
        for number, client in enumerate(silent):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            client.socket.settimeout(0.3)
            with suppress(TimeoutError):
                while True:
                    client.send(request * 100)
                    sent[number] += 100
            assert other.ask(ListGroupsRequest()).error_code == 0
        silent[0].socket.settimeout(20)
        for _ in range(min(sent[0], 300)):
            assert silent[0].frame() is not None


def test_row_60_a_client_that_reads_slowly(target: Target) -> None:
    """It receives its responses in order, a few bytes at a time."""
    with bounded(target), target.client() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(CALL * 500)
        received = bytearray(slow.socket.recv(4, socket.MSG_WAITALL))
        size = int.from_bytes(received, "big") + 4  # It grows with the groups of other tests.
        while len(received) < max(500 * 10, 2 * size):
            part = slow.socket.recv(64)
            assert part
            received += part
        assert bytes(received[size : 2 * size]) == bytes(received[:size])
