"""Connections of raw bytes, for tests of the order and timing of responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from konvene.broker.broker import Broker
from konvene.broker.net.connection import Connection
from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.messages import API_KEYS
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

JAVA = ("apache-kafka-java", "4.3.1")
RDKAFKA = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")

API_VERSIONS, HEARTBEAT = 18, 68


class Line:
    """One client's connection. `send` does not wait; `answer` returns the next response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent_requests: dict[int, tuple[int, int]] = {}

    @classmethod
    async def to(cls, broker: Broker, software: tuple[str, str] | None = JAVA) -> Line:
        """Open a connection and send ApiVersions with this software; None: do not send it."""
        line = cls(*await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1]))
        if software is not None:
            name, version = software
            request = API_KEYS[API_VERSIONS].request(
                client_software_name=name, client_software_version=version
            )
            await line.ask(API_VERSIONS, 3, request)
        return line

    def frame(self, key: int, version: int, request: Struct) -> bytes:
        """Encode a request with the next correlation id."""
        correlation_id = len(self.sent_requests) + 1
        self.sent_requests[correlation_id] = key, version
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
        tags = b"\0" if version >= API_KEYS[key].first_flexible else b""
        body = head + b"\0\1c" + tags + encode(request, version)
        return len(body).to_bytes(4, "big") + body

    def send(self, key: int, version: int, request: Struct) -> None:
        self.writer.write(self.frame(key, version, request))

    async def answer(self, within_s: float = 2) -> tuple[int, Any]:
        """Return the number of the request, from 1, and its response. Times out sooner than any hold."""
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), within_s), "big")
        return self.decoded(await self.reader.readexactly(size))

    def decoded(self, data: bytes) -> tuple[int, Any]:
        correlation_id = int.from_bytes(data[:4], "big")
        key, version = self.sent_requests[correlation_id]
        flexible = version >= API_KEYS[key].first_flexible and key != API_VERSIONS
        return correlation_id, decode(API_KEYS[key].response, version, data, 4 + flexible)

    async def ask(self, key: int, version: int, request: Struct) -> Any:
        """Send a request and return its response, which must be the next one."""
        self.send(key, version, request)
        correlation_id, answer = await self.answer()
        assert correlation_id == len(self.sent_requests)
        return answer

    async def beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        answer: ConsumerGroupHeartbeatResponse = await self.ask(HEARTBEAT, 1, request)
        return answer

    def close(self) -> None:
        self.writer.close()


class Wire(asyncio.Transport):
    """A transport that discards bytes and records the time and number of responses."""

    def __init__(self, passed: list[int]) -> None:
        super().__init__()
        self.passed = passed
        self.last = b""

    def write(self, data: Any) -> None:
        self.last = bytes(data)
        self.passed.append(int.from_bytes(data[4:8], "big"))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.passed.append(-1)


class Direct(Line):
    """A connection without a socket, for tests with thousands of them."""

    def __init__(self, broker: Broker, passed: list[int], software: tuple[str, str] = JAVA) -> None:
        self.sent_requests = {}
        self.connection = Connection(broker.network)
        self.wire = Wire(passed)
        self.connection.connection_made(self.wire)
        name, version = software
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        self.send(API_VERSIONS, 3, request)

    def send(self, key: int, version: int, request: Any) -> None:
        frame = self.frame(key, version, request)
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))

    def last_answer(self) -> Any:
        """Return the last response."""
        return self.decoded(self.wire.last[4:])[1]

    def end(self) -> None:
        self.connection.connection_lost(None)


def joining(member_id: str, *topics: str, group: str = "g", **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=topics,
        topic_partitions=(),
        **more,
    )


def staying(member_id: str, epoch: int, group: str = "g", **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)


async def until(happened: Callable[[], Any], within_s: float = 5) -> Any:
    """Wait until a condition holds."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not (found := happened()):
        assert asyncio.get_running_loop().time() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.001)
    return found
