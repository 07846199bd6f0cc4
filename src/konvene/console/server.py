"""Serves the console with uvicorn until it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import uvicorn

from konvene.client.net.cluster import Cluster
from konvene.console.app import Options, application
from konvene.console.live import Hub
from konvene.console.security import Access, is_loopback
from konvene.console.watch import ClusterWatch

__all__ = ["CannotListen", "ServerOptions", "run"]

ANSWER_MS = 5_000
"""How long the cluster may take to answer before the page shows that it does not."""
SHUTDOWN_S = 1
"""How long open event streams may take to end."""


class CannotListen(Exception):
    """The address is in use or not permitted; the message is for the user."""

    def __init__(self, message: str, *, is_in_use: bool) -> None:
        super().__init__(message)
        self.is_in_use = is_in_use
        """Whether another port may be free."""


class ServerOptions(NamedTuple):
    """Where the console listens, and what it may do."""

    host: str = "localhost"
    port: int = 8080
    allow_changes: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names besides those of `host` by which the server may be addressed."""
    token: str | None = None
    """Token that requests need; if None, one is generated unless only this machine can connect."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run(cluster: Cluster, options: ServerOptions, ready: Callable[[str], None]) -> None:
    """Serve until cancelled, and close `cluster`; `ready` is called with the URL to open.

    Raises `CannotListen`."""
    listener = _listen(options.host, options.port)
    port = listener.getsockname()[1]
    access = _access(options)
    cluster.settings = cluster.settings._replace(
        default_api_timeout_ms=min(cluster.settings.default_api_timeout_ms, ANSWER_MS),
        request_timeout_ms=min(cluster.settings.request_timeout_ms, ANSWER_MS),
        connect_timeout_ms=min(cluster.settings.connect_timeout_ms, ANSWER_MS),
    )
    watch = ClusterWatch(cluster)
    hub = Hub(watch, {"allow_changes": options.allow_changes})
    app = application(watch, hub, Options(access, options.allow_changes))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S, proxy_headers=False,
    )  # fmt: skip
    server = _Server(config)
    following = asyncio.ensure_future(watch.run())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        ready(_url(options.host, port, access.token))
        await asyncio.wait({serving, following}, return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, following):
            if task.done():
                task.result()
    finally:
        hub.close()  # An open stream would delay the end.
        server.should_exit = True
        await asyncio.wait({serving})
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. `localhost` is 127.0.0.1, so that its port is the same for every name."""
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((where[0], port), family=family, backlog=128)
    except OSError as error:
        # `create_server` repeats the address in `strerror`; errors of names have codes of their own.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        is_in_use = error.errno in (errno.EADDRINUSE, errno.EACCES)
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}", is_in_use=is_in_use) from None


def _access(options: ServerOptions) -> Access:
    local = is_loopback(options.host)
    hosts = {"localhost", "127.0.0.1", "::1", options.host.strip("[]").lower(), *options.allowed_hosts}
    if not local:
        hosts |= {socket.gethostname().lower(), *_own_addresses()}
    token = options.token or (None if local else secrets.token_urlsafe(24))
    return Access(frozenset(hosts - {"0.0.0.0", "::"}), token)


def _own_addresses() -> set[str]:
    """Return the addresses to which this machine's name resolves."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return set()
    return {str(each[4][0]) for each in found}


def _url(host: str, port: int, token: str | None) -> str:
    """Return the URL to open, with the token if there is one."""
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{name}:{port}/" + (f"?token={quote(token)}" if token else "")
