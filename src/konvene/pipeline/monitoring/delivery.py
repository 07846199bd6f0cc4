"""Delivers messages about alerts to webhooks and commands, without delaying the follower.

Each target has a thread and a queue. An attempt has a time limit; a failed one is repeated after a time that
doubles, up to `ATTEMPTS` times, and then the message is given up with a note. Secrets of a URL (user,
password, path and query) are in no note. Redirects are not followed, and TLS certificates are verified.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import queue
import shlex
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, Request, build_opener

from konvene.pipeline.monitoring.firing import Message
from konvene.security.oauth.urls import NoRedirect

__all__ = ["Command", "Courier", "DeliveryFailed", "Target", "Webhook"]

TIMEOUT_S = 10.0
ATTEMPTS = 8
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
MAX_WAITING = 1000
"""Messages that may wait for a target; further ones wait in the file of alerts until the next start."""


class DeliveryFailed(Exception):
    """A message was not delivered; `again` states whether another attempt may succeed."""

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


class Target(Protocol):
    """A receiver of messages."""

    @property
    def name(self) -> str:
        """Return a name without secrets, for notes."""
        ...

    @property
    def id(self) -> str:
        """Return what identifies the target across restarts, without secrets."""
        ...

    def send(self, message: Message) -> None:
        """Make one attempt to deliver a message. Raises `DeliveryFailed`."""
        ...


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Webhook:
    """A URL that receives each message as a POST request with a JSON body.

    Raises ValueError for a URL that is not of HTTP or HTTPS."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a webhook is an http:// or https:// URL")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if parts.port is None else f"{host}:{parts.port}"
        self.name, self.id = f"{parts.scheme}://{place}", _digest(url)
        self._url = urlunsplit((parts.scheme, place, parts.path or "/", parts.query, ""))
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "User-Agent": "konvene"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._opener = build_opener(NoRedirect(), HTTPSHandler(context=ssl.create_default_context()))

    def __repr__(self) -> str:
        return f"<webhook {self.name}>"

    def send(self, message: Message) -> None:
        body = json.dumps(message).encode()
        request = Request(self._url, body, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                response.read(1)
        except HTTPError as error:
            error.close()
            raise DeliveryFailed(
                f"HTTP {error.code}", error.code >= 500 or error.code in (408, 429)
            ) from None
        except URLError as error:
            raise DeliveryFailed(str(error.reason)) from None
        except OSError as error:
            raise DeliveryFailed(str(error) or type(error).__name__) from None
        except ValueError:
            raise DeliveryFailed("no HTTP response") from None


class Command:
    """A command that is run for each message, with the JSON on its standard input.

    It is split like a shell's words, but no shell runs it. What it prints goes to standard error. Raises
    ValueError if it is empty or a quotation is not closed."""

    def __init__(self, command: str, timeout_s: float = 3 * TIMEOUT_S) -> None:
        self._args = shlex.split(command)
        if not self._args:
            raise ValueError("the command is empty")
        self.name, self.id = self._args[0], _digest(command)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<command {self.name}>"

    def send(self, message: Message) -> None:
        try:
            process = subprocess.Popen(
                self._args, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), start_new_session=True
            )
        except OSError as error:
            raise DeliveryFailed(error.strerror or str(error), again=False) from None
        try:
            process.communicate(json.dumps(message).encode() + b"\n", self._timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise DeliveryFailed(f"ended after {self._timeout_s:g} s") from None
        if process.returncode:
            raise DeliveryFailed(f"exit code {process.returncode}")


class Courier:
    """Delivers messages to one target in a thread of its own, in order.

    `done` is called for each message that was delivered or given up; `note` with a text about failures.
    `pause` waits for some seconds and returns True if the courier is to stop."""

    def __init__(
        self, target: Target, done: Callable[[Message], None], note: Callable[[str], None],
        pause: Callable[[float], bool] | None = None,
    ) -> None:  # fmt: skip
        self.target = target
        self.delivered = self.failed = 0
        self._done, self._note = done, note
        self._stopping = threading.Event()
        self._pause = pause or self._stopping.wait
        self._queue: queue.Queue[Message | None] = queue.Queue(MAX_WAITING + 1)
        self._thread = threading.Thread(target=self._run, name=f"konvene-{target!r}", daemon=True)

    def __repr__(self) -> str:
        return f"<courier to {self.target.name}: {self._queue.qsize()} messages waiting>"

    def start(self) -> None:
        self._thread.start()

    def put(self, message: Message) -> None:
        """Add a message; never waits."""
        if self._queue.qsize() < MAX_WAITING:
            self._queue.put_nowait(message)

    def stop(self, timeout_s: float = TIMEOUT_S) -> None:
        """End: messages that can be delivered at once are; for the others no further attempt is made."""
        self._stopping.set()
        self._queue.put_nowait(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            if self.deliver(message):
                self._done(message)

    def deliver(self, message: Message) -> bool:
        """Deliver a message; return False if the courier was stopped before all attempts were made."""
        wait_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.target.send(message)
            except DeliveryFailed as error:
                if not error.again or attempt == ATTEMPTS:
                    self.failed += 1
                    self._note(f"Alert not delivered to {self.target.name}: {error}; given up.")
                    return True
                if attempt == 1:
                    self._note(f"Alert not delivered to {self.target.name}: {error}; retrying.")
                if self._pause(wait_s):
                    return False
                wait_s = min(2 * wait_s, MAX_PAUSE_S)
            else:
                self.delivered += 1
                return True
        return True
