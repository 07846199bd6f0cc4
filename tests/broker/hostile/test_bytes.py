"""Rows 59 and 60 of the hostile inputs where they need settings or a look inside; else see `hostile`."""

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
    """Run a test against a broker, and see that it still serves afterwards."""

    async def main() -> None:
        async with running(path, settings) as broker:
            port = broker.catalogue.advertised[1]
            await test(broker, port)
            answer = await asyncio.wait_for(exchange(port, VERSIONS), 5)
            assert decode(ApiVersionsResponse, 3, answer, 4).error_code == 0

    asyncio.run(main())


async def is_closed(port: int, data: bytes, within_s: float = 5) -> bool:
    """Send bytes; whether the broker hangs up without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(1), within_s) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


def test_row_60_a_reader_that_never_reads_is_not_read_from(tmp_path: Path) -> None:
    """Its answers fill its buffer, then its requests wait in its own; memory stays bounded."""

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


def test_row_59_who_hangs_up_leaves_groups_a_coordinator(tmp_path: Path) -> None:
    """The first who ask for a coordinator ask at once, and one of them does not wait for the answer."""

    async def test(broker: Broker, port: int) -> None:
        find = b"\0\x0a\0\4\0\0\0\1\0\1c\0" + encode(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(find))
        await writer.drain()
        writer.close()
        await asyncio.gather(*(exchange(port, find) for _ in range(5)))
        describe = b"\0\x0f\0\5\0\0\0\1\0\1c\0" + encode(DescribeGroupsRequest(groups=("g",)), 5)
        for _ in range(100):
            told = decode(DescribeGroupsResponse, 5, await exchange(port, describe), 5)
            if told.groups[0].error_code == 0:
                break
            await exchange(port, find)
            await asyncio.sleep(0.02)
        assert told.groups[0].error_code == 0

    with_broker(tmp_path, test)


def test_row_59_connections_too_many_are_refused(tmp_path: Path) -> None:
    """`max.connections` and `max.connections.per.ip` close the newcomer; a place left is free again."""

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
    """`connections.max.idle.ms`: whoever says nothing for so long is disconnected, who waits is not."""

    async def test(broker: Broker, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(1), 5) == b""
        writer.close()

    with_broker(tmp_path, test, {"connections.max.idle.ms": "300"})


def test_many_requests_at_once_are_answered_in_order(tmp_path: Path) -> None:
    """A client that sends ahead gets every answer, in the order of its requests."""

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
