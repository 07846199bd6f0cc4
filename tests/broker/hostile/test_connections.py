"""Rows 3, 59 and 60 of the hostile inputs: connections that are many, silent, slow, or deaf.

What is asserted is memory of the broker's process, and that another client is served meanwhile. Kafka is not
asked: it takes the memory that is announced, and is out of it after a few of these.
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
"""Far less than what visitors announce, and room for what the allocator had given back and takes again."""


@pytest.fixture(autouse=True)
def ours(target: Target) -> None:
    if target.is_kafka:
        pytest.skip("Kafka does not survive it")


TOGETHER = 20
"""Connections between two requests of somebody else."""

CALL = frame(header(16, 4) + encode(ListGroupsRequest(), 4))


@contextmanager
def bounded(target: Target, growth_mib: float = GROWTH_MIB) -> Iterator[Client]:
    """A client that is served before and after, and a broker whose memory stays where it was."""
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
"""What visitors do before they go, without reading anything."""


def test_row_59_ten_thousand_garbage_connections(target: Target) -> None:
    """One after another; somebody else asks all the while."""
    with bounded(target) as other:
        for number in range(10_000):
            with target.client() as client:
                GARBAGE[number % len(GARBAGE)](client)
                if number % 3 == 0:  # A reset rather than a farewell.
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if number % TOGETHER == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


@pytest.mark.parametrize(
    "sent", [b"", b"\0", CALL[:9], CALL], ids=["silent", "a byte", "a part", "a request"]
)
def test_row_59_two_thousand_half_open_connections(sent: bytes, target: Target) -> None:
    """All at once, each with nothing, with a part of a request, or with an answer that nobody fetches."""
    with bounded(target) as other, ExitStack() as held:
        for number in range(2_000):
            client = held.enter_context(target.client())
            client.send(sent)
            if number % TOGETHER == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


def test_row_03_many_who_announce_a_hundred_megabytes(target: Target) -> None:
    """No memory is taken before the bytes are there."""
    with bounded(target) as other, ExitStack() as held:
        for number in range(200):
            client = held.enter_context(target.client())
            client.send((104_857_600).to_bytes(4, "big") + header(0, 9))
            client.send(bytes(100))
            if number % TOGETHER == 0:
                assert other.ask(ListGroupsRequest()).error_code == 0


def test_row_03_a_slow_sender_is_waited_for(target: Target) -> None:
    """A request that comes byte by byte is answered like any other; others are served meanwhile."""
    with bounded(target) as other, target.client() as slow:
        for byte in CALL:
            slow.send(bytes([byte]))
            assert other.ask(ListGroupsRequest()).error_code == 0
        assert slow.frame() is not None


def test_row_60_clients_that_never_read(target: Target) -> None:
    """Answers fill their buffers, then their requests wait in their own; who reads at last gets answers."""
    for number in range(10):
        target.topic(f"hostile-answers-{number}", 20)
    asked = frame(header(3, 12) + encode(MetadataRequest(topics=None), 12))
    with bounded(target, 60) as other, ExitStack() as held:
        deaf = [held.enter_context(target.client()) for _ in range(3)]
        sent = [0] * len(deaf)
        for number, client in enumerate(deaf):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            client.socket.settimeout(0.3)
            with suppress(TimeoutError):
                while True:
                    client.send(asked * 100)
                    sent[number] += 100
            assert other.ask(ListGroupsRequest()).error_code == 0
        deaf[0].socket.settimeout(20)
        for _ in range(min(sent[0], 300)):
            assert deaf[0].frame() is not None


def test_row_60_a_client_that_reads_slowly(target: Target) -> None:
    """It gets what it asked for, in order, a few bytes at a time."""
    with bounded(target), target.client() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(CALL * 500)
        got = bytearray(slow.socket.recv(4, socket.MSG_WAITALL))
        size = int.from_bytes(got, "big") + 4  # It grows with the groups that others made.
        while len(got) < max(500 * 10, 2 * size):
            part = slow.socket.recv(64)
            assert part
            got += part
        assert bytes(got[size : 2 * size]) == bytes(got[:size])
