"""A proxy between clients and a broker that forwards bytes and records each request and the response time.

It listens on the broker's advertised address (`advertised.listeners`), so that clients always connect through
it. It reads the headers of requests, and error, epoch and interval of heartbeat responses of consumer and
streams groups.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from .brokers import HOST

CLASSIC_HEARTBEAT, HEARTBEAT, STREAMS_HEARTBEAT = 12, 68, 88
HEARTBEATS = (CLASSIC_HEARTBEAT, HEARTBEAT, STREAMS_HEARTBEAT)
ASSIGNED = (HEARTBEAT, STREAMS_HEARTBEAT)
"""APIs whose responses begin alike and contain the next heartbeat interval."""


@dataclass
class Exchange:
    """A request and its answer."""

    key: int
    requested_s: float
    answered_s: float = 0.0
    error: int = 0
    epoch: int = 0
    interval_ms: int = 0
    """By a heartbeat: when to send the next one."""

    @property
    def took_s(self) -> float:
        return self.answered_s - self.requested_s


@dataclass
class Wire:
    """One client's connection."""

    client_id: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    waiting: dict[int, Exchange] = field(default_factory=dict)
    closed_s: float = 0.0
    """When the client closed it; 0: it did not."""
    out_of_order: int = 0

    def of(self, *keys: int) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.key in keys and exchange.answered_s]

    def on_request(self, frame: bytes) -> None:
        length = int.from_bytes(frame[8:10], "big", signed=True)
        self.client_id = frame[10 : 10 + max(length, 0)].decode()
        exchange = Exchange(int.from_bytes(frame[:2], "big"), time.monotonic())
        self.exchanges.append(exchange)
        self.waiting[int.from_bytes(frame[4:8], "big")] = exchange

    def on_response(self, frame: bytes) -> None:
        number = int.from_bytes(frame[:4], "big")
        self.out_of_order += number in self.waiting and next(iter(self.waiting)) != number
        exchange = self.waiting.pop(number, None)
        if exchange is None:
            return
        exchange.answered_s = time.monotonic()
        if exchange.key in ASSIGNED:
            exchange.error = int.from_bytes(frame[9:11], "big", signed=True)
            at = _after_text(frame, _after_text(frame, 11))
            exchange.epoch = int.from_bytes(frame[at : at + 4], "big", signed=True)
            exchange.interval_ms = int.from_bytes(frame[at + 4 : at + 8], "big")


def _after_text(frame: bytes, at: int) -> int:
    """Behind a compact string, none of which is longer than 16 kB here."""
    length, at = frame[at], at + 1
    if length & 128:
        length, at = (length & 127) | frame[at] << 7, at + 1
    return at + max(length - 1, 0)


class Tap:
    """Listens on a port of its own and passes everything on to `behind`."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.wires: list[Wire] = []
        self._loop = asyncio.new_event_loop()
        self._socket = socket.create_server((HOST, 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._pass_on, sock=self._socket))
        self._loop.run_forever()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire()
        self.wires.append(wire)
        ahead, back = await asyncio.open_connection(HOST, self.behind)

        async def requests() -> None:
            await _copy(reader, back, wire.on_request)
            wire.closed_s = wire.closed_s or time.monotonic()

        await asyncio.gather(requests(), _copy(ahead, writer, wire.on_response))

    def of(self, client_id: str) -> Iterator[Wire]:
        """The connections of a client on which it has sent heartbeats."""
        for wire in self.wires:
            if wire.client_id == client_id and any(e.key in HEARTBEATS for e in wire.exchanges):
                yield wire


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: object) -> None:
    """Pass frames on, each as soon as it is whole."""
    assert callable(note)
    try:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            note(frame)
            writer.write(size + frame)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()
