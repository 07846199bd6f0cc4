"""Closed-loop load generator over many connections: a fixed number of requests in flight on each.

The broker's CPU time and the wall clock are read at both ends of a window while the load continues. Responses
received together are followed by requests sent together. The generator does not know the contents of
requests.

It uses epoll and no event loop: a generator slower than the broker would send one request at a time, and hide
what the broker gains from batches of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from bench.wire import AFTER_NUMBER, HOST, NUMBER_AT, WAIT_S, BadAnswer

#: A request of this size is not copied to be given its number.
LARGE = 1 << 16
MOST_PARTS = 64

Result = TypeVar("Result")


class Caller(Protocol):
    """Source of the requests of one connection, and check of the responses, which come in request order."""

    buffer_size: int

    def frame(self) -> bytes: ...

    def answered(self, body: memoryview) -> int:
        """Check a response and return the record bytes of request or response. Raises BadAnswer."""


class Repeated:
    """Sends the same frames in rotation. Responses are compared with a verified one up to `same` bytes; the
    bytes after that, such as offsets, differ between responses."""

    buffer_size = 1 << 16

    def __init__(
        self, frames: Sequence[bytes], proven: bytes, same: int | None = None, carries: int = 0
    ) -> None:
        self.frames = frames
        self.size = len(proven)
        self.same = len(proven) if same is None else same
        self.expected = proven[4 : self.same]
        self.carries = carries
        self.turn = 0

    def __repr__(self) -> str:
        return f"<{len(self.frames)} frames in turn, at {self.turn}>"

    def frame(self) -> bytes:
        frame = self.frames[self.turn]
        self.turn = (self.turn + 1) % len(self.frames)
        return frame

    def answered(self, body: memoryview) -> int:
        if len(body) != self.size or bytes(body[4 : self.same]) != self.expected:
            received = bytes(body[4 : self.same])
            at = next((i for i, (a, b) in enumerate(zip(received, self.expected, strict=False)) if a != b), 0)
            expected, got = self.expected[at : at + 16].hex(), received[at : at + 16].hex()
            raise BadAnswer(
                f"{len(body)} bytes with {got} at {4 + at}, not {self.size} bytes with {expected}"
            )
        return self.carries


class Windows(NamedTuple):
    """Duration and number of measurement windows, and the warm-up before them."""

    seconds: float
    runs: int
    warm_s: float


class Window(NamedTuple):
    """Responses and CPU time of one measurement window."""

    requests: int
    size: int
    wall_s: float
    cpu_s: float


class Tally:
    """Responses of all connections so far."""

    def __init__(self) -> None:
        self.requests = 0
        self.size = 0

    def __repr__(self) -> str:
        return f"<{self.requests} answers, {self.size} bytes>"


class Driven:
    """A connection of the generator, with one read buffer; it sends as much as the socket takes."""

    def __init__(self, connected: socket.socket, caller: Caller, tally: Tally) -> None:
        self.caller = caller
        self.tally = tally
        self.buffer = bytearray(caller.buffer_size)
        self.view = memoryview(self.buffer)
        self.end = 0
        self.correlation_id = 0
        self.unsent: list[bytes | memoryview] = []
        self.armed = False
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def __repr__(self) -> str:
        return f"<{self.caller!r}, {self.correlation_id} sent>"

    def ask(self) -> None:
        """Append the next request to the send buffer."""
        frame = self.caller.frame()
        self.correlation_id += 1
        number = self.correlation_id.to_bytes(4, "big")
        if len(frame) < LARGE:
            self.unsent.append(b"%b%b%b" % (frame[:NUMBER_AT], number, frame[AFTER_NUMBER:]))
        else:
            self.unsent += (frame[:NUMBER_AT] + number, memoryview(frame)[AFTER_NUMBER:])

    def read(self) -> None:
        """Read responses, and queue a request for each complete one."""
        came = self.socket.recv_into(self.view[self.end :] if self.end else self.view)
        if not came:
            raise ConnectionError("the broker closed the connection")
        self.end += came
        at, end, view, tally = 0, self.end, self.view, self.tally
        while end - at >= 4:
            behind = at + 4 + int.from_bytes(view[at : at + 4], "big")
            if behind > end:
                self._make_room(behind - at)
                break
            tally.size += self.caller.answered(view[at + 4 : behind])
            tally.requests += 1
            self.ask()
            at = behind
        if at:
            self.end = end - at
            if self.end:
                self.buffer[: self.end] = self.buffer[at:end]
            self.send()

    def _make_room(self, size: int) -> None:
        if size > len(self.buffer):
            self.buffer = self.buffer + bytes(2 * size - len(self.buffer))
            self.view = memoryview(self.buffer)

    def send(self) -> None:
        """Send as much of the send buffer as the socket takes."""
        parts = self.unsent
        try:
            sent = self.socket.send(parts[0]) if len(parts) == 1 else self.socket.sendmsg(parts[:MOST_PARTS])
        except BlockingIOError:
            return
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if parts and sent:
            parts[0] = memoryview(parts[0])[sent:]


class TlsDriven(Driven):
    """A connection over TLS. Reads all that was received, because epoll does not know what is decrypted."""

    socket: ssl.SSLSocket

    def read(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            super().read()
            while self.socket.pending():
                super().read()

    def send(self) -> None:
        parts = self.unsent
        with contextlib.suppress(ssl.SSLWantWriteError):
            while parts:
                sent = self.socket.send(parts[0])
                parts[:1] = [memoryview(parts[0])[sent:]] if sent < len(parts[0]) else []


def connection(port: int) -> socket.socket:
    """Return a plaintext connection to the broker."""
    return socket.create_connection((HOST, port), timeout=WAIT_S)


class Driving:
    """All connections and the epoll loop that serves them."""

    def __init__(self, connect: Callable[[], socket.socket], callers: Sequence[Caller]) -> None:
        self.tally = Tally()
        self.lines: dict[int, Driven] = {}
        self.epoll = select.epoll()
        for caller in callers:
            connected = connect()
            kind = TlsDriven if isinstance(connected, ssl.SSLSocket) else Driven
            line = kind(connected, caller, self.tally)
            self.lines[line.socket.fileno()] = line
            self.epoll.register(line.socket, select.EPOLLIN)

    def __repr__(self) -> str:
        return f"<{len(self.lines)} connections, {self.tally}>"

    def begin(self, depth: int) -> None:
        for line in self.lines.values():
            for _ in range(depth):
                line.ask()
            line.send()
            self._arm(line)

    def go_on(self, seconds: float) -> None:
        """Serve all connections for this many seconds."""
        clock, lines, poll = time.perf_counter, self.lines, self.epoll.poll
        until = clock() + seconds
        while (now := clock()) < until:
            for number, mask in poll(until - now):
                line = lines[number]
                if mask & ~select.EPOLLOUT:
                    line.read()
                else:
                    line.send()
                if line.armed != bool(line.unsent):
                    self._arm(line)

    def _arm(self, line: Driven) -> None:
        """Register for write events while there is data to send."""
        line.armed = bool(line.unsent)
        self.epoll.modify(line.socket, select.EPOLLIN | select.EPOLLOUT if line.armed else select.EPOLLIN)

    def close(self) -> None:
        for line in self.lines.values():
            line.socket.close()
        self.epoll.close()


def drive(
    port: int, callers: Sequence[Caller], depth: int, windows: Windows, cpu_s: Callable[[], float]
) -> list[Window]:
    """Run the load and return the measurement windows."""
    driving = Driving(lambda: connection(port), callers)
    tally, seen = driving.tally, []
    with without_garbage(), contextlib.closing(driving):
        driving.begin(depth)
        driving.go_on(windows.warm_s)
        for _ in range(windows.runs):
            requests, size, cpu, began = tally.requests, tally.size, cpu_s(), time.perf_counter()
            driving.go_on(windows.seconds)
            wall = time.perf_counter() - began
            seen.append(Window(tally.requests - requests, tally.size - size, wall, cpu_s() - cpu))
    return seen


@contextlib.contextmanager
def without_garbage() -> Iterator[None]:
    """Disable the garbage collector for the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(story: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine, on uvloop if it is installed."""
    with without_garbage():
        try:
            import uvloop
        except ImportError:
            return asyncio.run(story)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(story)
