"""The TLS handshake of a connection, before a `Connection` gets its bytes.

A connection counts against the limits of connections as soon as it is accepted, so before its handshake. A
client that does not complete the handshake in time is disconnected, and so is the oldest one if too many
handshakes are incomplete. A failed handshake is one log line, worded as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from konvene.broker.net.network import Network

log = logging.getLogger("konvene.connection")

HANDSHAKE_TIMEOUT_S = 30.0
"""Longest time for a handshake; `connections.max.idle.ms` may shorten it."""

SHUTDOWN_TIMEOUT_S = 5.0
"""Longest time to wait for the client's close_notify after the broker's."""

MAX_HALF_OPEN = 4_000
"""Number of incomplete handshakes of a listener above which the oldest one is aborted."""

Accept = Callable[[], asyncio.BaseProtocol]


class HalfOpen:
    """The connections of one TLS listener whose handshakes are incomplete."""

    def __init__(self, network: Network, listener: str, limit: int = MAX_HALF_OPEN) -> None:
        self.network = network
        self.listener = listener
        self._limit = limit
        self._handshakes: dict[TlsHandshake, None] = {}

    def __repr__(self) -> str:
        return f"<{len(self._handshakes)} incomplete handshakes of {self.listener}>"

    def __len__(self) -> int:
        return len(self._handshakes)

    def add(self, handshake: TlsHandshake) -> None:
        """Add a handshake, and abort the oldest one if there are too many."""
        if len(self._handshakes) >= self._limit:
            next(iter(self._handshakes)).abort("too many incomplete handshakes")
        self._handshakes[handshake] = None

    def discard(self, handshake: TlsHandshake) -> None:
        self._handshakes.pop(handshake, None)

    def abort_all(self) -> None:
        for handshake in list(self._handshakes):
            handshake.abort("the listener is closed")

    @property
    def timeout_s(self) -> float:
        """Return the longest time that a handshake may take."""
        idle_s = self.network.settings.config["connections.max.idle.ms"] / 1000
        return min(HANDSHAKE_TIMEOUT_S, idle_s) if idle_s > 0 else HANDSHAKE_TIMEOUT_S


class TlsHandshake(asyncio.Protocol):
    """The asyncio protocol of a connection to a TLS listener until its handshake is complete.

    `accept` creates the protocol that follows; it also gets what the client sends right after the handshake,
    before the event loop resumes this one."""

    __slots__ = (
        "_accept",
        "_context",
        "_followed_by",
        "_half_open",
        "_host",
        "_received",
        "_task",
        "_transport",
    )

    def __init__(self, half_open: HalfOpen, context: ssl.SSLContext, accept: Accept) -> None:
        self._half_open = half_open
        self._context = context
        self._accept = accept
        self._host = ""
        self._received: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._followed_by: asyncio.BaseProtocol | None = None

    def __repr__(self) -> str:
        return f"<TLS handshake with {self._host}>"

    def abort(self, reason: str) -> None:
        """Close the connection without a handshake."""
        log.info("Failed authentication with %s (SSL handshake failed): %s", self._host, reason)
        self._half_open.discard(self)
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = f"/{peer[0]}" if isinstance(peer, tuple) else "/local"
        network, listener = self._half_open.network, self._half_open.listener
        reason = network.connection_quotas.rejection_reason(self._host, listener)
        if reason is not None:
            log.warning("%s: rejected: %s", self._host, reason)
            self._transport.abort()
            return
        network.connection_quotas.connected(self._host, listener)
        self._half_open.add(self)
        self._transport.pause_reading()
        self._task = network.loop.create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._received.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._followed_by is not None:
            self._followed_by.connection_lost(error)
            self._followed_by = None

    async def _run(self) -> None:
        """Complete the handshake, then pass the connection on."""
        transport = await self._encrypted()
        if transport is None or transport.is_closing():
            return
        following = self._followed_by = self._accept()
        transport.set_protocol(following)
        following.connection_made(transport)
        for data in self._received:
            _feed(following, data)
        self._received.clear()

    async def _encrypted(self) -> asyncio.Transport | None:
        """Return the transport of the encrypted bytes; None if the handshake failed."""
        half_open, transport = self._half_open, self._transport
        network, cause = half_open.network, ""
        assert transport is not None
        try:
            return await network.loop.start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=half_open.timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except ConnectionAbortedError as error:
            cause, _ = "timeout", error.with_traceback(None)
        except ssl.SSLError as error:
            # The traceback and the future of the handshake refer to each other.
            cause, _ = error.reason or type(error).__name__, error.with_traceback(None)
        except OSError as error:
            log.debug("Connection with %s disconnected (%s)", self._host, error.with_traceback(None))
        finally:
            half_open.discard(self)
            network.connection_quotas.disconnected(self._host, half_open.listener)
            self._transport = self._task = None
        if cause:
            log.info("Failed authentication with %s (SSL handshake failed): %s", self._host, cause)
        transport.abort()
        return None


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Pass received bytes to a protocol of either kind."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        cast("asyncio.Protocol", protocol).data_received(data)
        return
    while data:
        view = memoryview(protocol.get_buffer(len(data)))
        size = min(len(view), len(data))
        view[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]
