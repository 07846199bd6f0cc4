"""`/health/live` and `/health/ready` on the metrics port: status codes and reasons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.metrics.scraping import ON, get
from tests.broker.running import listening

from konvene.broker.broker import Broker
from konvene.broker.health import Health
from konvene.broker.metrics.server import MetricsServer
from konvene.broker.net.socket_server import SocketServer
from konvene.log.errors import LogOffline

Check = Callable[[int, Broker, SocketServer, Health], Coroutine[Any, Any, None]]


def checked(path: Path, check: Check) -> None:
    """Run `check` with the metrics port of a broker whose group coordinators are loaded."""

    async def main() -> None:
        async with listening(path, ON) as (broker, listener):
            await broker.groups.make_ready()
            await broker.groups.loaded()
            assert broker.meter is not None
            health = Health(broker, listener)
            server = MetricsServer(broker, broker.meter, health)
            await server.listen("127.0.0.1", 0)
            try:
                await check(server.port, broker, listener, health)
            finally:
                await server.close()

    asyncio.run(main())


async def health_of(port: int, path: str) -> tuple[str, Any]:
    """Return status line and document of a response."""
    head, body = await get(port, path)
    assert "Content-Type: application/json\r\n" in head
    return head.partition("\r\n")[0].removeprefix("HTTP/1.1 "), json.loads(body)


async def not_ready(port: int) -> list[str]:
    """Return the reasons of a broker that is not ready; it answers as alive."""
    assert await health_of(port, "/health/live") == ("200 OK", {"status": "live"})
    status, document = await health_of(port, "/health/ready")
    assert status == "503 Service Unavailable"
    assert document.pop("status") == "not ready"
    (reasons,) = document.values()
    assert list(document) == ["reasons"]
    found: list[str] = reasons
    return found


def test_running_broker_is_live_and_ready(tmp_path: Path) -> None:
    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        assert await health_of(port, "/health/live") == ("200 OK", {"status": "live"})
        assert await health_of(port, "/health/ready?verbose") == ("200 OK", {"status": "ready"})
        assert repr(health) == "<health: ready>"
        head, body = await get(port, "/health/ready", method="HEAD")
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert body == b""

    checked(tmp_path, check)


def test_broker_is_not_ready_while_coordinators_load(tmp_path: Path) -> None:
    """One that cannot be loaded at all does not count: the broker serves the others."""

    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        first, second = broker.groups.all()
        first.state = second.state = "loading"
        assert await not_ready(port) == ["2 group coordinators are loading their logs"]
        first.state, second.state = "active", "failed"
        assert (await health_of(port, "/health/ready"))[0] == "200 OK"
        second.state = "active"

    checked(tmp_path, check)


def test_broker_is_not_ready_with_an_offline_log_directory(tmp_path: Path) -> None:
    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        broker.directory.health.failure = LogOffline("cannot write orders-0")
        assert await not_ready(port) == ["the log directory is offline: cannot write orders-0"]
        broker.directory.health.failure = None

    checked(tmp_path, check)


def test_broker_is_not_ready_without_a_listener(tmp_path: Path) -> None:
    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        await listener.close()
        assert await not_ready(port) == ["the listener is closed"]

    checked(tmp_path, check)


def test_stopping_broker_is_not_ready_and_has_no_metrics(tmp_path: Path) -> None:
    """Its logs are being closed, so they are not read for a scrape."""

    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        health.stopping = True
        assert await not_ready(port) == ["the broker is stopping"]
        head, body = await get(port)
        assert head.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert body == b"The broker is stopping.\n"

    checked(tmp_path, check)


def test_metrics_without_library_are_not_implemented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health works all the same."""

    async def check(port: int, broker: Broker, listener: SocketServer, health: Health) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("konvene.broker.metrics.exposition.is_installed", lambda: False)
            head, body = await get(port)
            assert head.startswith("HTTP/1.1 501 Not Implemented\r\n")
            assert b"pip install prometheus-client" in body
            assert (await health_of(port, "/health/ready"))[0] == "200 OK"

    checked(tmp_path, check)
