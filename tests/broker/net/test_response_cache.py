"""A repeated heartbeat is answered from the cache until its group changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.codec.compile import decode, encode
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.sync_group import SyncGroupRequest
from konvene.runtime.coordinator import RequestContext


async def create_stable_group(broker: Broker) -> str:
    """Create a stable group of one member, and return the member id."""
    await broker.groups.make_ready()
    await asyncio.sleep(0.05)
    coordinator: Any = broker.groups.of("g")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    joined = await coordinator.submit(join, RequestContext(api_version=3, client_id="c", fresh_ids=("1",)))
    member: str = joined.member_id
    await coordinator.submit(
        SyncGroupRequest(group_id="g", generation_id=1, member_id=member), RequestContext(5)
    )
    return member


class Connection:
    """A connection that sends heartbeats and reads the responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.correlation_id = 0

    async def beat(self, request: HeartbeatRequest) -> int:
        """Send a heartbeat and return the error code."""
        answer = await self.ask(b"\0\x0c\0\4", encode(request, 4))
        return decode(HeartbeatResponse, 4, answer, 5).error_code

    async def report(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of a consumer group's member."""
        answer = await self.ask(b"\0\x44\0\1", encode(request, 1))
        return decode(ConsumerGroupHeartbeatResponse, 1, answer, 5)

    async def ask(self, api: bytes, request: bytes) -> bytes:
        """Send a request and return its response; checks the correlation id."""
        self.correlation_id += 1
        body = api + self.correlation_id.to_bytes(4, "big") + b"\0\1c\0" + request
        self.writer.write(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 5), "big")
        answer = await self.reader.readexactly(size)
        assert int.from_bytes(answer[:4], "big") == self.correlation_id
        return answer


def test_repeated_classic_heartbeat_follows_the_group(tmp_path: Path) -> None:
    """The same bytes get NONE, REBALANCE_IN_PROGRESS and UNKNOWN_MEMBER_ID as the group changes."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            member = await create_stable_group(broker)
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
            connection = Connection(
                *await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1])
            )
            coordinator: Any = broker.groups.of("g")
            timers = coordinator._timers._deadlines
            assert [await connection.beat(request) for _ in range(3)] == [0, 0, 0]
            assert repr(broker.response_cache) == "<1 cached responses>"
            before = timers["session", "g", member]
            await asyncio.sleep(0.01)
            assert await connection.beat(request) == 0
            assert timers["session", "g", member] > before
            second = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=300,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
            )
            joining = coordinator.submit(
                second, RequestContext(api_version=3, client_id="d", fresh_ids=("2",))
            )
            assert await connection.beat(request) == Errors.REBALANCE_IN_PROGRESS
            assert await connection.beat(request) == Errors.REBALANCE_IN_PROGRESS
            coordinator._fail(OSError("made up"))
            await asyncio.sleep(0.05)
            assert joining.done
            assert await connection.beat(request) == 0
            coordinator._stop_serving("failed")
            assert await connection.beat(request) == Errors.NOT_COORDINATOR
            connection.writer.close()

    asyncio.run(main())


def test_rejected_heartbeat_is_not_cached(tmp_path: Path) -> None:
    """Another generation or member is rejected each time."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            member = await create_stable_group(broker)
            connection = Connection(
                *await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1])
            )
            for _ in range(2):
                stale = HeartbeatRequest(group_id="g", generation_id=0, member_id=member)
                assert await connection.beat(stale) == Errors.ILLEGAL_GENERATION
                unknown = HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
                assert await connection.beat(unknown) == Errors.UNKNOWN_MEMBER_ID
            assert repr(broker.response_cache) == "<0 cached responses>"
            connection.writer.close()

    asyncio.run(main())


def test_repeated_consumer_heartbeat_follows_the_group(tmp_path: Path) -> None:
    """Another topic or member invalidates it. An assignment is returned once."""

    async def main() -> None:
        async with running(tmp_path, {"group.consumer.assignment.interval.ms": "0"}) as broker:
            await broker.groups.make_ready()
            await asyncio.sleep(0.05)
            await broker.topic_creator.create_missing(["orders"])
            connection = Connection(
                *await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1])
            )
            joined = await connection.report(joining("a", "orders", "audit"))
            assert (joined.error_code, joined.member_epoch) == (0, 2)
            stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
            quiet = await connection.report(stays)
            assert quiet.assignment is None
            assert [await connection.report(stays) for _ in range(2)] == [quiet, quiet]
            assert repr(broker.response_cache) == "<1 cached responses>"
            await broker.topic_creator.create_missing(["audit"])
            response = await connection.report(stays)
            assert response.member_epoch == 3
            assert response.assignment is not None and len(response.assignment.topic_partitions) == 2
            assert (await connection.report(stays)).error_code == Errors.FENCED_MEMBER_EPOCH
            await connection.report(joining("b", "orders"))
            assert (await connection.report(stays.replace(member_epoch=3))).assignment is not None
            connection.writer.close()

    asyncio.run(main())


def test_repeated_invalid_heartbeat_is_rejected_again(tmp_path: Path) -> None:
    """Although the member is stable; its session continues."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            await asyncio.sleep(0.05)
            connection = Connection(
                *await asyncio.open_connection("127.0.0.1", broker.catalogue.advertised[1])
            )
            assert (await connection.report(joining("a", "orders"))).member_epoch == 2
            wrong = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2, rack_id="")
            for _ in range(2):
                assert (await connection.report(wrong)).error_code == Errors.INVALID_REQUEST
            assert repr(broker.response_cache) == "<0 cached responses>"
            connection.writer.close()

    asyncio.run(main())


def joining(member_id: str, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=topics,
        topic_partitions=(),
    )
