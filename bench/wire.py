"""Requests as frames, and two clients: a blocking connection for set-up, and one on the event loop.

Load tests have a loop of their own (bench/drive.py). `VERSIONS` has the request versions, which Apache Kafka
4.4 and konvene both serve.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TypeVar, cast

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.messages import API_KEYS

HOST = "127.0.0.1"
VERSIONS = {
    "Produce": 13,
    "Fetch": 17,
    "ListOffsets": 7,
    "OffsetCommit": 10,
    "OffsetFetch": 9,
    "FindCoordinator": 4,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "ApiVersions": 3,
    "CreateTopics": 7,
    "DeleteTopics": 5,
    "IncrementalAlterConfigs": 1,
    "AlterClientQuotas": 1,
    "ConsumerGroupHeartbeat": 1,
    "ShareGroupHeartbeat": 1,
    "ShareFetch": 2,
    "ShareAcknowledge": 2,
    "StreamsGroupHeartbeat": 1,
    "StreamsGroupDescribe": 1,
    "InitProducerId": 5,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 4,
    "TxnOffsetCommit": 5,
    "EndTxn": 5,
    "SaslHandshake": 1,
    "SaslAuthenticate": 2,
    "CreateAcls": 3,
}
#: Where the correlation id of a frame stands, behind the length, the key and the version; and what follows.
NUMBER_AT, AFTER_NUMBER = 8, 12
WAIT_S = 120.0

Response = TypeVar("Response", bound=Struct)


class BadAnswer(Exception):
    """The broker sent another response than the benchmark needs."""


def frame_of(request: Struct, version: int | None = None) -> bytes:
    """Encode a request as a frame, with the client id "bench", in the version of VERSIONS unless one is
    given."""
    api = API_KEYS[type(request).__key__]
    version = VERSIONS[api.name] if version is None else version
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\5bench"
    if version >= api.first_flexible:
        head += b"\0"
    body = head + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def read(kind: type[Response], body: bytes, version: int | None = None) -> Response:
    """Decode a response from its frame without the length."""
    api = API_KEYS[kind.__key__]
    version = VERSIONS[api.name] if version is None else version
    return decode(kind, version, body, 5 if api.response_header_version(version) else 4)


class Peer:
    """A blocking connection for set-up: a new one, or one that is open already."""

    def __init__(self, port: int, connected: socket.socket | None = None) -> None:
        self.socket = connected or socket.create_connection((HOST, port), timeout=WAIT_S)

    def __repr__(self) -> str:
        return f"<peer of {self.socket.getpeername()}>"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Struct, kind: type[Response]) -> Response:
        return read(kind, self.exchange(frame_of(request)))

    def exchange(self, frame: bytes) -> bytes:
        """Send a frame and return the response frame without its length."""
        self.socket.sendall(frame)
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)


class Asking(asyncio.Protocol):
    """A connection on the event loop; `ask` sends a request and awaits the response."""

    def __init__(self) -> None:
        self.come = b""
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.transport: asyncio.Transport

    def __repr__(self) -> str:
        return f"<connection with {len(self.waiting)} under way>"

    async def ask(self, request: Struct, kind: type[Response], version: int | None = None) -> Response:
        return read(kind, await self.exchange(frame_of(request, version)), version)

    def exchange(self, frame: bytes) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.write(frame)
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.come = self.come + data if self.come else data
        while len(self.come) >= 4:
            behind = 4 + int.from_bytes(self.come[:4], "big")
            if behind > len(self.come):
                break
            body, self.come = self.come[4:behind], self.come[behind:]
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(exc or ConnectionError("the broker closed the connection"))


async def asking(port: int) -> Asking:
    _, line = await asyncio.get_running_loop().create_connection(Asking, HOST, port)
    return line
