"""A console in a background thread, and requests to it over plain HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.cli.processes import ServeProcess

from konvene.client.net.cluster import Cluster
from konvene.console.security import HEADER
from konvene.console.server import ServerOptions, run

DEADLINE_S = 60
State = defaultdict[str, dict[str, Any]]
"""Sections of a view: values by section and key; a section that was not sent is empty."""


class Response(NamedTuple):
    """Status, headers (names in lower case) and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningConsole:
    """A console at `url`, to which requests can be sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        """The URL to open, without the token."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self.address = parts.hostname, parts.port

    def __repr__(self) -> str:
        return f"<console at {self.url}>"

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        """Send a request as it is written; `_` in names of headers stands for `-`."""
        connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, received, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, **headers)

    def post(self, path: str, **fields: Any) -> Response:
        """Send a request as the page sends it."""
        return self.request("POST", path, json.dumps(fields).encode(), **{HEADER: "1"})

    def view(self, name: str, **arguments: str) -> Stream:
        """Open a live view."""
        return Stream(self.address, f"/api/live?{urlencode({'view': name, **arguments})}")


class Stream:
    """The events of a live view; `state` is what they amount to so far."""

    def __init__(self, address: tuple[str, int], path: str) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
        self._connection.request("GET", path)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.media_type = self._response.getheader("content-type", "")
        self.state: State = defaultdict(dict)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def event(self) -> tuple[str, Any] | None:
        """Return the name and data of the next event, after applying it; None at the end of the stream."""
        name, data = "", ""
        while line := self._response.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif not field and name:
                parsed = json.loads(data)
                self._apply(name, parsed)
                return name, parsed
        return None

    def until(self, condition: Callable[[State], object]) -> State:
        """Receive events until the state fulfils the condition; return the state."""
        while not (self.state and condition(self.state)):
            assert self.event() is not None, "the stream ended"
        return self.state

    def _apply(self, name: str, data: Any) -> None:
        if name == "reset":
            self.state = defaultdict(dict, data["sections"])
            return
        for section, keys in data["remove"].items():
            for key in keys:
                del self.state[section][key]
        for section, values in data["set"].items():
            self.state[section].update(values)


def is_live(state: State) -> bool:
    """Return True if the logs are read and the cluster answers."""
    return state["facts"]["logs"]["state"] == "live" and state["facts"]["error"] is None


@contextmanager
def running_console(address: str, **options: Any) -> Iterator[RunningConsole]:
    """Run a console of the cluster at `address` in a background thread; `options` as in `ServerOptions`."""
    loop = asyncio.new_event_loop()
    urls: list[str] = []
    failures: list[BaseException] = []
    started = threading.Event()

    async def serve() -> None:
        try:
            await run(Cluster(address), ServerOptions(**{"port": 0} | options), announce)
        except asyncio.CancelledError:
            pass
        except BaseException as failure:
            failures.append(failure)
            started.set()

    def announce(url: str) -> None:
        urls.append(url.partition("?")[0])
        started.set()

    serving = loop.create_task(serve())
    thread = threading.Thread(target=loop.run_until_complete, args=(serving,), daemon=True)
    thread.start()
    assert started.wait(DEADLINE_S)
    try:
        if failures:
            raise failures[0]
        yield RunningConsole(urls[0])
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        loop.close()


def kill(served: ServeProcess) -> None:
    served.process.kill()
    served.process.communicate(timeout=DEADLINE_S)


@contextmanager
def served_on(directory: Path, port: str = "0") -> Iterator[ServeProcess]:
    """Run a broker in a process of its own, which is killed at the end."""
    settings = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.num.partitions=2"]
    served = ServeProcess("--data-dir", str(directory), "--port", port, *settings)
    try:
        yield served
    finally:
        kill(served)


def port_of(served: ServeProcess) -> str:
    return str(served.address.rpartition(":")[2])
