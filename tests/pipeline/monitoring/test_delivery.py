"""Messages reach webhooks and commands; failures are repeated, delay no other target and show no secret."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from konvene.pipeline.monitoring.delivery import (
    ATTEMPTS,
    MAX_PAUSE_S,
    Command,
    Courier,
    DeliveryFailed,
    Target,
    Webhook,
)

MESSAGE = {"id": "lag/c/g//1/firing", "status": "firing", "text": "late ☃"}


class Received:
    """A server of webhooks: the requests that it received, and the statuses that it answers, then 200."""

    def __init__(self, *statuses: int) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.statuses = list(statuses)
        self.url = ""


@contextlib.contextmanager
def receiving(*statuses: int) -> Iterator[Received]:
    received = Received(*statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(received.statuses.pop(0) if received.statuses else 200)
            self.send_header("Location", received.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


class Desk:
    """A courier's callbacks: what was done, noted, and how long it would have waited."""

    def __init__(self, target: Target, stop_after: int = 1000) -> None:
        self.done: list[Any] = []
        self.notes: list[str] = []
        self.pauses: list[float] = []
        self.stop_after = stop_after
        self.courier = Courier(target, self.done.append, self.notes.append, self.pause)

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return len(self.pauses) >= self.stop_after


def test_a_webhook_receives_json() -> None:
    with receiving() as received:
        url = received.url.replace("http://", "http://ann:s%20cret@") + "/hook/token?key=1"
        Webhook(url).send(MESSAGE)
    ((path, headers, body),) = received.requests
    assert (path, body) == ("/hook/token?key=1", MESSAGE)
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Basic YW5uOnMgY3JldA=="


@pytest.mark.parametrize("status", [500, 503, 429])
def test_failures_are_repeated_with_growing_pauses(status: int) -> None:
    with receiving(status, status, status) as received:
        desk = Desk(Webhook(received.url))
        assert desk.courier.deliver(MESSAGE)
    assert len(received.requests) == 4 and desk.pauses == [1.0, 2.0, 4.0]
    assert desk.notes == [f"Alert not delivered to {received.url}: HTTP {status}; retrying."]


@pytest.mark.parametrize("status", [400, 404, 302, 308])
def test_rejected_messages_are_given_up(status: int) -> None:
    """So are redirects, which are not followed."""
    with receiving(status) as received:
        desk = Desk(Webhook(received.url))
        assert desk.courier.deliver(MESSAGE)
    assert len(received.requests) == 1 and desk.pauses == []
    assert desk.notes == [f"Alert not delivered to {received.url}: HTTP {status}; given up."]


def test_attempts_are_bounded_and_notes_have_no_secrets() -> None:
    with receiving() as received:
        address = received.url.removeprefix("http://")
    desk = Desk(Webhook(f"http://user:password@{address}/token?key=secret"))
    assert desk.courier.deliver(MESSAGE)
    assert len(desk.pauses) == ATTEMPTS - 1 and max(desk.pauses) <= MAX_PAUSE_S
    assert len(desk.notes) == 2 and desk.notes[1].endswith("; given up.")
    for secret in ("user", "password", "token", "secret"):
        assert not any(secret in note for note in desk.notes)


def test_a_courier_that_is_stopped_makes_no_further_attempt() -> None:
    with receiving(500, 500, 500) as received:
        desk = Desk(Webhook(received.url), stop_after=2)
        assert not desk.courier.deliver(MESSAGE)
    assert len(received.requests) == 2


@pytest.mark.parametrize("url", ["ftp://host/", "host:80", "", "https://", "http://[::1"])
def test_invalid_webhooks(url: str) -> None:
    with pytest.raises(ValueError):
        Webhook(url)


def test_the_name_of_a_webhook_is_its_host() -> None:
    assert Webhook("https://u:p@[::1]:8443/x?y").name == "https://[::1]:8443"


# commands -----------------------------------------------------------------------------------------


def test_a_command_receives_json(tmp_path: Path) -> None:
    out = tmp_path / "a b"
    Command(f"sh -c 'cat > \"$0\"' '{out}'").send(MESSAGE)
    assert json.loads(out.read_text()) == MESSAGE


@pytest.mark.parametrize(
    ("command", "reason", "again"),
    [
        ("sh -c 'exit 3'", "exit code 3", True),
        ("sh -c 'cat; sleep 600'", "ended after 0.2 s", True),
        ("/no/such/command", "No such file or directory", False),
    ],
)
def test_commands_that_fail(command: str, reason: str, again: bool) -> None:
    with pytest.raises(DeliveryFailed, match=reason) as caught:
        Command(command, timeout_s=0.2 if "sleep" in command else 60).send(MESSAGE)
    assert caught.value.again == again


def test_invalid_commands() -> None:
    for command in ("", "sh -c 'x"):
        with pytest.raises(ValueError):
            Command(command)
    assert "secret" not in repr(Command("notify --token secret"))


# couriers -----------------------------------------------------------------------------------------


def test_a_target_that_hangs_delays_no_other() -> None:
    """Nor does it delay the caller; messages of one target are delivered in order."""
    release = threading.Event()

    class Hanging:
        name = id = "hanging"

        def send(self, message: Any) -> None:
            release.wait(60)

    with receiving() as received:
        slow, quick = Desk(Hanging()), Desk(Webhook(received.url))
        for desk in (slow, quick):
            desk.courier.start()
            for number in range(3):
                desk.courier.put({"id": str(number)})
        quick.courier.stop(60)
        assert [each["id"] for each in quick.done] == ["0", "1", "2"] and slow.done == []
        release.set()
        slow.courier.stop(60)
    assert [each["id"] for each in slow.done] == ["0", "1", "2"]
