"""One side of a simulated connection: the asyncio transport that a host's protocol uses.

Written data waits here until the network has room for it (`Network.pump`), received data until the protocol
reads. An endpoint knows nothing of latency and faults, and draws no random numbers.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konvene.sim.machine.loop import Host
    from konvene.sim.machine.network import Network

__all__ = ["End", "Endpoint", "Pipe", "was_reset"]


class Pipe:
    """One direction of a connection: the data that is in the write buffer, in flight, or received but not
    read."""

    __slots__ = (
        "arrived",
        "deaf",
        "dst",
        "ends",
        "flight",
        "last_at",
        "retries",
        "src",
        "under_way",
        "waiting",
    )

    def __init__(self, src: Endpoint, dst: Endpoint) -> None:
        self.src = src
        self.dst = dst
        self.waiting = bytearray()
        self.flight: deque[bytes | End] = deque()
        self.under_way = 0
        self.arrived = bytearray()
        self.ends: End | None = None
        self.last_at = 0.0
        self.deaf = False
        self.retries = 0


class End:
    """A marker in a pipe for the end of the data. `error` is None if the sender closed the connection, an
    exception if the connection was reset."""

    __slots__ = ("error",)

    def __init__(self, error: Exception | None) -> None:
        self.error = error


def was_reset() -> Exception:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class Endpoint(asyncio.Transport):
    """One side of a connection: the transport of its host's protocol."""

    def __init__(self, network: Network, host: Host, port: int, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.network = network
        self.host = host
        self.port = port
        self.peer: Endpoint
        self.out: Pipe
        self.inn: Pipe
        self._protocol: Any = None
        self._buffered = False
        self.set_protocol(protocol)
        self._reading_paused = self._write_paused = False
        self._closing = self.lost = False
        self._high, self._low = 64 * 1024, 16 * 1024

    def __repr__(self) -> str:
        return f"<{self.label} to {self.peer.label}>"

    @property
    def label(self) -> str:
        return f"{self.host.name}:{self.port}"

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name in ("peername", "sockname"):
            side = self.peer if name == "peername" else self
            return self.network.address(side.host.name), side.port
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing or self.lost

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.lost or not self.host.alive or not data:
            return
        self.out.waiting += data
        self.network.pump(self.out)
        if len(self.out.waiting) > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self.out.waiting)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    def drained(self) -> None:
        """Called when data has left the write buffer: if little remains, let the protocol write again; if
        nothing remains, complete a pending `close`."""
        if self._write_paused and len(self.out.waiting) <= self._low and not self.lost:
            self._write_paused = False
            self.network.loop.call_soon(self._protocol.resume_writing, context=self.host.context.copy())
        if self._closing and not self.lost and not self.out.waiting:
            self.end(None, End(None))

    # --- reading ---

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self.network.loop.call_soon(self.take, context=self.host.context.copy())

    def is_reading(self) -> bool:
        return not self._reading_paused and not self.is_closing()

    def take(self) -> None:
        """Pass the received data, and then the end of the data if it has arrived, to the protocol; do nothing
        while the protocol or the network has paused reading."""
        pipe = self.inn
        data, pipe.arrived = pipe.arrived, bytearray()
        at = 0
        while at < len(data) and not (self._reading_paused or self.is_closing() or pipe.deaf):
            if not self._buffered:
                at = len(data)
                self._protocol.data_received(bytes(data))
            else:
                room = self._protocol.get_buffer(-1)
                count = min(len(room), len(data) - at)
                room[:count] = data[at : at + count]
                at += count
                self._protocol.buffer_updated(count)
        if at < len(data) and not self.is_closing():
            pipe.arrived[:0] = data[at:]
        if pipe.ends is not None and not pipe.arrived and not self.is_closing() and not pipe.deaf:
            if pipe.ends.error is not None:
                self.end(pipe.ends.error, None)
            elif not self._protocol.eof_received():
                self.close()
        self.network.pump(pipe)

    # --- ending ---

    def close(self) -> None:
        if self._closing or self.lost:
            return
        self._closing = True
        if not self.out.waiting:
            self.end(None, End(None))

    def abort(self) -> None:
        self._closing = True
        self.end(None, End(was_reset()))

    def end(self, error: Exception | None, peer_end: End | None) -> None:
        """End this side of the connection: its protocol receives `error` in `connection_lost`.

        The peer receives `peer_end`, or nothing if that is None."""
        if self.lost:
            return
        self._closing = self.lost = True
        self.out.waiting.clear()
        self.inn.arrived.clear()
        self.network.endpoints.pop(self, None)
        if peer_end is not None:
            self.network.send_end(self.out, peer_end)
        self.network.loop.call_soon(self._protocol.connection_lost, error, context=self.host.context.copy())
