"""What a connection promises: answers find their requests, versions are agreed on, ends are told to all."""

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


def test_requests_are_pipelined_and_each_gets_its_own_answer() -> None:
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


@pytest.mark.parametrize("theirs, spoken", [((0, 4), 4), ((0, 9), 4), ((1, 2), 2)])
def test_the_highest_version_in_common_is_spoken(theirs: tuple[int, int], spoken: int) -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        await connection.send(beat("g"))
        connection.close()

    with ScriptedBroker(versions={"Heartbeat": theirs}, Heartbeat=HeartbeatResponse()) as broker:
        run(job())
    assert broker.request_log == [f"Heartbeat v{spoken}"]


def test_no_version_in_common_is_told_before_anything_is_sent() -> None:
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


def test_an_old_broker_that_refuses_our_apiversions_is_asked_in_its_newest() -> None:
    """It answers in version 0, with the versions that it has; KIP-511."""
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


def test_a_request_without_an_answer_times_out_and_takes_the_connection_with_it() -> None:
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


def test_a_cancelled_waiter_leaves_the_connection_as_it_is() -> None:
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


def test_all_who_wait_are_told_that_the_broker_went_away() -> None:
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
def test_bytes_that_are_no_answer_are_a_bad_response(garbage: bytes) -> None:
    async def job() -> None:
        with pytest.raises(BadResponse):
            await Connection.open("127.0.0.1", broker.port)

    with ScriptedBroker(ApiVersions=garbage) as broker:
        run(job())


def test_nobody_there_is_told_in_plain_words() -> None:
    with ScriptedBroker() as broker:
        port = broker.port
    with pytest.raises(CannotConnect) as refused:
        run(Connection.open("127.0.0.1", port))
    assert str(refused.value) == f"cannot connect to 127.0.0.1:{port}: connection refused"


def test_what_a_version_has_no_field_for_is_refused() -> None:
    async def job() -> None:
        connection = await Connection.open("127.0.0.1", broker.port)
        with pytest.raises(UnsupportedVersion):
            await connection.send(HeartbeatRequest(group_id="g", group_instance_id="i"), 2)
        with pytest.raises(UnsupportedVersion, match="v99 was requested"):
            await connection.send(MetadataRequest(), 99)
        connection.close()

    with ScriptedBroker(Heartbeat=HeartbeatResponse()) as broker:
        run(job())
