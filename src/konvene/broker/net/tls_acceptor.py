"""Accepts the connections of a listener with TLS, and counts them from then on, before their handshake.

As in Kafka, a connection counts against `max.connections`, `max.connections.per.ip` and the rates of new
connections when it is accepted: clients that never complete a handshake cannot occupy more than these limits
allow. Each handshake has a deadline, whatever the client sends meanwhile, and its protocol is created when it
is complete. The context is the one that is current when the connection is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from konvene.security.tls.alerts import SEND_ALERT

if TYPE_CHECKING:
    from konvene.broker.net.connection_quotas import ConnectionQuotas
    from konvene.broker.net.endpoint import Endpoint
    from konvene.broker.net.listener import Accept
    from konvene.broker.net.network import Network

__all__ = ["ContextProvider", "TlsAcceptor"]

log = logging.getLogger("konvene.connection")

HANDSHAKE_TIMEOUT_S = 30.0
"""Longest time for a handshake; `connections.max.idle.ms` may shorten it."""

SHUTDOWN_TIMEOUT_S = 5.0
"""Longest time to wait for the client's close_notify after the broker's."""

MAX_ACCEPTS = 100
"""Connections that are accepted before other work of the event loop continues."""

PAUSE_S = 1.0
"""Pause after the system has no resources for another connection."""

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

NO_SUCH_ADDRESS = frozenset((errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))

ContextProvider = Callable[[], ssl.SSLContext]
"""Returns the TLS context of the next connection."""


class TlsAcceptor:
    """The sockets of a listener with TLS, and the connections whose handshake is not complete."""

    def __init__(
        self, network: Network, accept: Accept, endpoint: Callable[[], Endpoint], context: ContextProvider
    ) -> None:
        self._network = network
        self._accept = accept
        self._endpoint = endpoint
        self._context = context
        self._sockets: list[socket.socket] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}
        idle_s = network.settings.config["connections.max.idle.ms"] / 1000
        self.handshake_timeout_s = min(HANDSHAKE_TIMEOUT_S, idle_s) if idle_s > 0 else HANDSHAKE_TIMEOUT_S
        """Deadline of handshakes that begin from now on."""

    def __repr__(self) -> str:
        return f"<TLS acceptor: {len(self._sockets)} sockets, {len(self._handshakes)} handshakes>"

    @property
    def is_serving(self) -> bool:
        return bool(self._sockets)

    @property
    def handshakes(self) -> int:
        """Return the number of connections whose handshake is not complete."""
        return len(self._handshakes)

    async def listen(self, host: str | None, port: int) -> int:
        """Listen on all addresses of a host, None for all interfaces; return the port.

        Addresses of a family that the system does not have are left out. Raises OSError if an address is not
        available, or none is."""
        loop, backlog = self._network.loop, self._network.settings.config["socket.listen.backlog.size"]
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        opened: list[socket.socket] = []
        missing: OSError | None = None
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                opened.append(_listening(family, kind, protocol, address, backlog))
            except OSError as error:
                if error.errno in NO_SUCH_ADDRESS:
                    missing = error
                    continue
                for one in opened:
                    one.close()
                raise
        if missing is not None and not opened:
            raise missing
        for one in opened:
            loop.add_reader(one, self._accept_ready, one)
        self._sockets += opened
        bound: int = opened[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop accepting connections, and end the handshakes that are not complete."""
        for listening in self._sockets:
            self._network.loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._handshakes:
            task.cancel()

    def _accept_ready(self, listening: socket.socket) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                log.warning("cannot accept connections: %s", os.strerror(error.errno))
                self._network.loop.remove_reader(listening)
                self._network.loop.call_later(PAUSE_S, self._resume, listening)
                return
            self._accepted(accepted, f"/{address[0]}")

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._network.loop.add_reader(listening, self._accept_ready, listening)

    def _accepted(self, accepted: socket.socket, host: str) -> None:
        """Begin the handshake of a connection, or let it wait if connections are created too fast."""
        accepted.setblocking(False)
        endpoint = self._endpoint()
        begin = partial(self._begin, accepted, host, endpoint)
        admission = self._network.connection_admission
        if admission.rates.is_limited(endpoint.name):
            admission.admit(_Waiting(accepted, begin), endpoint.name, host)
        else:
            begin()

    def _begin(self, accepted: socket.socket, host: str, endpoint: Endpoint) -> None:
        """Begin the handshake of a connection unless a limit is exceeded."""
        if not self._sockets:  # The listener was closed while the connection waited.
            accepted.close()
            return
        quotas = self._network.connection_quotas
        reason = quotas.rejection_reason(host, endpoint.name)
        if reason is not None:
            log.warning("%s: rejected: %s", host, reason)
            accepted.close()
            return
        handshake = _Handshake(quotas, host, endpoint, self._accept)
        task = self._network.loop.create_task(self._complete(accepted, handshake))
        self._handshakes[task] = None
        task.add_done_callback(self._handshakes.pop)

    async def _complete(self, accepted: socket.socket, handshake: _Handshake) -> None:
        SEND_ALERT.set(partial(_send, accepted))
        try:
            await self._network.loop.connect_accepted_socket(
                lambda: handshake,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=self.handshake_timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except (OSError, TimeoutError) as error:
            log.info("%s: TLS handshake failed: %s", handshake.host, _reason(error))
            # The frames refer to the error and to all of the connection, and wait for the collector with it.
            traceback.clear_frames(error.__traceback__)
        finally:
            handshake.end()


class _Waiting:
    """A connection whose handshake may not begin yet (`ConnectionAdmission`)."""

    def __init__(self, accepted: socket.socket, begin: Callable[[], None]) -> None:
        self._socket = accepted
        self._begin = begin

    def __repr__(self) -> str:
        return "<connection before its handshake>"

    def accept(self) -> None:
        """Begin the handshake."""
        self._begin()

    def abort(self) -> None:
        """Close the connection."""
        self._socket.close()


class _Handshake(asyncio.BufferedProtocol):
    """The protocol of a connection until its handshake is complete, and the connection's place in the
    quotas."""

    __slots__ = ("_accept", "_endpoint", "_is_counted", "_quotas", "host")

    def __init__(self, quotas: ConnectionQuotas, host: str, endpoint: Endpoint, accept: Accept) -> None:
        self.host = host
        self._quotas = quotas
        self._endpoint = endpoint
        self._accept = accept
        quotas.connected(host, endpoint.name)
        self._is_counted = True

    def __repr__(self) -> str:
        return f"<handshake of {self.host}>"

    def end(self) -> None:
        """Give the place in the quotas back; the connection that follows counts itself."""
        if self._is_counted:
            self._is_counted = False
            self._quotas.disconnected(self.host, self._endpoint.name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the connection to its own protocol: the handshake is complete."""
        self.end()
        connection = self._accept(self._endpoint)
        cast("asyncio.Transport", transport).set_protocol(connection)
        connection.connection_made(transport)


def _listening(family: int, kind: int, protocol: int, address: object, backlog: int) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)  # type: ignore[arg-type]
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _send(accepted: socket.socket, alert: bytes) -> None:
    with contextlib.suppress(OSError):  # The client has closed the connection, or reads nothing.
        accepted.send(alert)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "malformed"
    return str(error) or type(error).__name__
