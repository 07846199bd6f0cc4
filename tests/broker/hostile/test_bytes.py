"""Rows 3, 59 and 60 of the hostile inputs, as far as they need settings or access to the broker's objects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.broker.running import exchange, running

from konvene.broker.broker import Broker
from konvene.codec.compile import decode, encode
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.metadata import MetadataRequest

VERSIONS = b"\0\x12\0\3\0\0\0\1\0\1c\0" + encode(
    ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def with_broker(
    path: Path, test: Callable[[Broker, int], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    """Run a test against a broker, and check that the broker still serves afterwards."""

    async def main() -> None:
        async with running(path, settings) as broker:
            port = broker.catalogue.advertised[1]
            await test(broker, port)
            answer = await asyncio.wait_for(exchange(port, VERSIONS), 5)
            assert decode(ApiVersionsResponse, 3, answer, 4).error_code == 0

    asyncio.run(main())


async def is_closed(port: int, data: bytes, within_s: float = 5) -> bool:
    """Send bytes; return True if the broker closes the connection without a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(1), within_s) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


def test_row_60_a_client_that_never_reads_responses_is_not_read_from(tmp_path: Path) -> None:
    """Its unread responses stop the broker from reading further requests, so that memory stays bounded."""

    async def test(broker: Broker, port: int) -> None:
        await broker.topic_creator.create_missing([f"topic-{i}" for i in range(200)])
        metadata = b"\0\3\0\x0c\0\0\0\1\0\1c\0" + encode(MetadataRequest(topics=None), 12)
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = rss_mib()
        for _ in range(4000):
            writer.write(frame(metadata))
        for _ in range(20):
            await asyncio.sleep(0.02)
        assert rss_mib() - before < 60
        (connection,) = [c for c in broker.network.connections if c.is_write_blocked]
        assert connection.unprocessed_bytes < 4 << 20
        writer.transport.abort()

    with_broker(tmp_path, test)


def test_row_59_a_disconnect_during_find_coordinator_leaves_groups_a_coordinator(tmp_path: Path) -> None:
    """The first FindCoordinator requests are concurrent, and one client closes its connection early."""

    async def test(broker: Broker, port: int) -> None:
        find = b"\0\x0a\0\4\0\0\0\1\0\1c\0" + encode(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(find))
        await writer.drain()
        writer.close()
        await asyncio.gather(*(exchange(port, find) for _ in range(5)))
        describe = b"\0\x0f\0\5\0\0\0\1\0\1c\0" + encode(DescribeGroupsRequest(groups=("g",)), 5)
        for _ in range(100):
            response = decode(DescribeGroupsResponse, 5, await exchange(port, describe), 5)
            if response.groups[0].error_code == 0:
                break
            await exchange(port, find)
            await asyncio.sleep(0.02)
        assert response.groups[0].error_code == 0

    with_broker(tmp_path, test)


def test_row_59_connections_above_the_limit_are_closed(tmp_path: Path) -> None:
    """`max.connections` and `max.connections.per.ip` close new connections until an older one is closed."""

    async def test(broker: Broker, port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert await is_closed(port, frame(VERSIONS))
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.05)
        assert await exchange(port, VERSIONS)

    with_broker(tmp_path / "all", test, {"max.connections": "3"})
    with_broker(tmp_path / "ip", test, {"max.connections.per.ip": "3"})


def test_rows_03_and_59_idle_connections_are_closed(tmp_path: Path) -> None:
    """A connection without requests is closed after `connections.max.idle.ms`."""

    async def test(broker: Broker, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(1), 5) == b""
        writer.close()

    with_broker(tmp_path, test, {"connections.max.idle.ms": "300"})


def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    """A client that does not wait for responses receives all of them, in the order of its requests."""

    async def test(broker: Broker, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(3000):
            writer.write(frame(VERSIONS[:4] + i.to_bytes(4, "big") + VERSIONS[8:]))
        for i in range(3000):
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 10), "big")
            answer = await reader.readexactly(size)
            assert int.from_bytes(answer[:4], "big") == i
        writer.close()

    with_broker(tmp_path, test)


def rss_mib() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
