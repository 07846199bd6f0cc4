"""Connections: pipelining, version negotiation, timeouts, and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.client.scripted import HANG_UP, ScriptedBroker

from konvene.client.errors import (
    BadResponse,
    CannotConnect,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from konvene.client.net.connection import Connection
from konvene.messages.api_versions import ApiVersion, ApiVersionsResponse
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from konvene.messages.metadata import MetadataRequest


def run(job: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(job)


def beat(group: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group)


def test_requests_are_pipelined_and_each_gets_its_own_response() -> None:
    def code(request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=int(request.group_id))

    async def job() -> list[int]:
        connection = await Connection.open("127.0.0.1", broker.port)
        waiting = [connection.post(beat(str(i))) for i in range(20)]
        assert repr(connection) == f"<Connection 127.0.0.1:{broker.port} open, 20 waiting>"
        answers = await asyncio.gather(*waiting)
        connection.close()
        return [a.error_code for a in answers]

    with ScriptedBroker(Heartbeat=code) as broker:
        assert run(job()) == list(range(20))


@pytest.mark.parametrize("broker_versions, expected", [((0, 4), 4), ((0, 9), 4), ((1, 2), 2)])
def test_the_highest_common_version_is_used(broker_versions: tuple[int, int], expected: int) -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        await connection.send(beat("g"))
        connection.close()

    with ScriptedBroker(versions={"Heartbeat": broker_versions}, Heartbeat=HeartbeatResponse()) as broker:
        run(job())
    assert broker.request_log == [f"Heartbeat v{expected}"]


def test_without_a_common_version_no_request_is_sent() -> None:
    async def job() -> str:
        connection = await Connection.open("127.0.0.1", broker.port)
        assert not connection.speaks(12)
        with pytest.raises(UnsupportedVersion) as unshared:
            await connection.send(beat("g"))
        with pytest.raises(UnsupportedVersion, match="does not offer ListGroups"):
            await connection.send(ListGroupsRequest())
        connection.close()
        return str(unshared.value)

    with ScriptedBroker(versions={"Heartbeat": (7, 9)}, Heartbeat=HeartbeatResponse()) as broker:
        expected = f"the broker at 127.0.0.1:{broker.port} supports Heartbeat 7-9, this client 0-4"
        assert run(job()) == expected
    assert broker.request_log == []


def test_an_unsupported_apiversions_request_is_repeated_in_the_brokers_version() -> None:
    """KIP-511: the broker answers in version 0, with its supported versions."""
    rows = (ApiVersion(api_key=18, min_version=0, max_version=2), ApiVersion(api_key=12, max_version=1))
    refused = b"\x00\x23" + b"\x00\x00\x00\x02" + b"\x00\x12\x00\x00\x00\x02" + b"\x00\x0c\x00\x00\x00\x01"
    frame = (4 + len(refused)).to_bytes(4, "big") + b"\x00\x00\x00\x00" + refused

    async def job() -> int:
        connection = await Connection.open("127.0.0.1", broker.port)
        connection.close()
        return connection.version_of(12)

    with ScriptedBroker(ApiVersions=[frame, ApiVersionsResponse(api_keys=rows)]) as broker:
        assert run(job()) == 1
    assert broker.request_log == ["ApiVersions v5", "ApiVersions v2"]


def test_a_request_timeout_closes_the_connection() -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port, request_timeout_ms=60_000)
        first, second = connection.post(beat("a"), timeout_ms=50), connection.post(beat("b"))
        with pytest.raises(RequestTimedOut, match="did not answer Heartbeat within 50 ms"):
            await first
        with pytest.raises(RequestTimedOut):
            await second
        assert connection.is_closed
        with pytest.raises(RequestTimedOut):
            await connection.send(beat("c"))

    with ScriptedBroker(Heartbeat=None) as broker:
        run(job())


def test_a_cancelled_request_does_not_close_the_connection() -> None:
    async def job() -> list[str]:
        connection = await Connection.open("127.0.0.1", broker.port)
        waiting = asyncio.ensure_future(connection.send(beat("a")))
        await asyncio.sleep(0)
        waiting.cancel()
        answer: ListGroupsResponse = await connection.send(ListGroupsRequest())
        connection.close()
        return [g.group_id for g in answer.groups]

    groups = ListGroupsResponse(groups=(ListedGroup(group_id="g"),))
    with ScriptedBroker(Heartbeat=HeartbeatResponse(), ListGroups=groups) as broker:
        assert run(job()) == ["g"]
    assert broker.apis == ["Heartbeat", "ListGroups"]


def test_a_lost_connection_fails_all_pending_requests() -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        for waiting in [connection.post(beat("a")), connection.post(beat("b"))]:
            with pytest.raises(ConnectionLost, match=r"was closed by the broker|reset by peer"):
                await waiting
        with pytest.raises(ConnectionLost):
            await connection.send(beat("c"))

    with ScriptedBroker(Heartbeat=HANG_UP) as broker:
        run(job())


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x99\x99",
        b"\x00\x00\x00\x05\x00\x00\x00\x00\x00",
    ],
)
def test_undecodable_bytes_are_a_bad_response(garbage: bytes) -> None:
    async def job() -> None:
        with pytest.raises(BadResponse):
            await Connection.open("127.0.0.1", broker.port)

    with ScriptedBroker(ApiVersions=garbage) as broker:
        run(job())


def test_a_refused_connection_has_a_readable_error() -> None:
    with ScriptedBroker() as broker:
        port = broker.port
    with pytest.raises(CannotConnect) as refused:
        run(Connection.open("127.0.0.1", port))
    assert str(refused.value) == f"cannot connect to 127.0.0.1:{port}: connection refused"


def test_a_field_that_the_version_lacks_is_rejected() -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        with pytest.raises(UnsupportedVersion):
            await connection.send(HeartbeatRequest(group_id="g", group_instance_id="i"), 2)
        with pytest.raises(UnsupportedVersion, match="v99 was requested"):
            await connection.send(MetadataRequest(), 99)
        connection.close()

    with ScriptedBroker(Heartbeat=HeartbeatResponse()) as broker:
        run(job())
