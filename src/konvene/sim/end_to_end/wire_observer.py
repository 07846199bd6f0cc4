"""Observes the requests and responses of a broker at its sockets, for invariants of security.

`ObservedConnection` stands between a simulated socket and the broker's connection, which does not notice it.
It splits both byte streams into frames and matches them by correlation id. Of the listener with SASL it
decodes everything, and keeps the session as the wire shows it: the user that authenticated, and when the
session ends. Of the other listener it decodes only what changes ACLs, for the rights (`rights`).

The one fact that is read from within the broker is which heartbeats are held, and when they are released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.net.frames import read_frame_header, skip_tags
from konvene.codec.compile import decode_from
from konvene.messages import API_KEYS, Api
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.sim.end_to_end.rights import Rights

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.net.connection import Connection
    from konvene.broker.net.endpoint import Endpoint
    from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory

__all__ = ["SASL_APIS", "Exchange", "WireObserver"]

SASL_APIS = frozenset((17, 36))
ACL_APIS = frozenset((30, 31))


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, and its response when it has been sent."""

    connection: ObservedConnection
    api: Api
    version: int
    request: Any
    received: int
    """The moment at which the request arrived."""
    received_s: float
    user: str
    """The user of the session in which it arrived; empty before the first one."""
    expires_s: float | None
    """The end of that session."""
    released: int | None = None
    """The moment at which it left the heartbeat purgatory; None if it was not held."""
    released_s: float = 0.0
    response: Any = None
    answered: int = 0
    """The moment at which the response was sent."""


class WireObserver:
    """The connections of all lives of a broker. `on_exchange` is called with each completed exchange."""

    def __init__(self, now: Callable[[], float], on_exchange: Callable[[Exchange], None]) -> None:
        self.now = now
        self.rights = Rights()
        self.on_exchange = on_exchange
        self.open: dict[Exchange, None] = {}
        """Requests without a response."""
        self._connections: dict[object, ObservedConnection] = {}

    def __repr__(self) -> str:
        return f"<wire observer: {len(self.open)} requests open, {self.rights!r}>"

    def accept(self, broker: Broker) -> Callable[[Endpoint], asyncio.BaseProtocol]:
        """Return what creates the protocol of each connection of a broker that is about to start."""
        self.open.clear()
        self._connections.clear()
        self._watch(broker.heartbeat_purgatory)

        def accepted(endpoint: Endpoint) -> asyncio.BaseProtocol:
            connection = endpoint.connection(broker.network)
            observed = ObservedConnection(connection, self, decodes_all=endpoint.sasl is not None)
            self._connections[connection] = observed
            return observed

        return accepted

    def _watch(self, purgatory: HeartbeatPurgatory) -> None:
        drop = purgatory.drop

        def observed_drop(connection: Any) -> Any:
            held = drop(connection)
            if held is not None and connection in self._connections:
                self._connections[connection].released(held[1])
            return held

        setattr(purgatory, "drop", observed_drop)  # noqa: B010

    def received(self, exchange: Exchange) -> None:
        self.open[exchange] = None
        if exchange.api.key in ACL_APIS:
            self.rights.changing(exchange.request, exchange.received)

    def answered(self, exchange: Exchange) -> None:
        self.open.pop(exchange, None)
        if exchange.api.key in ACL_APIS:
            self.rights.changed(exchange.request, exchange.response, exchange.received, exchange.answered)
        else:
            self.on_exchange(exchange)

    def lost(self, connection: ObservedConnection, inner: Connection) -> None:
        self._connections.pop(inner, None)
        for exchange in connection.pending.values():
            self.open.pop(exchange, None)


class ObservedConnection(asyncio.BufferedProtocol):
    """The protocol of a socket, which passes everything to the broker's connection `inner`."""

    def __init__(self, inner: Connection, observer: WireObserver, *, decodes_all: bool) -> None:
        self._inner = inner
        self._observer = observer
        self._decodes_all = decodes_all
        self._view = memoryview(b"")
        self._requests, self._responses = bytearray(), bytearray()
        self.pending: dict[int, Exchange] = {}
        """Requests without a response, by correlation id."""
        self.user = ""
        self.expires_s: float | None = None

    def __repr__(self) -> str:
        return f"<observed {self._inner!r} of {self.user or 'no user yet'}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        observed = _ObservedTransport(transport, self)
        self._inner.connection_made(cast("asyncio.BaseTransport", observed))

    def connection_lost(self, exc: Exception | None) -> None:
        self._observer.lost(self, self._inner)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._view = self._inner.get_buffer(sizehint)
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._requests += self._view[:nbytes]
        for frame in _frames(self._requests):
            self._received(frame)
        self._inner.buffer_updated(nbytes)

    def written(self, data: bytes) -> None:
        """The broker sends `data`."""
        self._responses += data
        for frame in _frames(self._responses):
            exchange = self.pending.pop(int.from_bytes(frame[4:8], "big"), None)
            if exchange is not None:
                self._answered(exchange, frame)

    def released(self, frame: bytes) -> None:
        """The heartbeat `frame` leaves the purgatory."""
        exchange = self.pending.get(int.from_bytes(frame[8:12], "big"))
        if exchange is not None:
            exchange.released = self._tick()
            exchange.released_s = self._observer.now()

    def _tick(self) -> int:
        return self._observer.rights.tick(self._observer.now())

    def _received(self, frame: bytes) -> None:
        header = read_frame_header(frame, 4, len(frame))
        if not self._decodes_all and header.api_key not in ACL_APIS:
            return
        api, version = API_KEYS[header.api_key], header.api_version
        is_flexible = version >= api.first_flexible
        body = skip_tags(frame, header.body, len(frame)) if is_flexible else header.body
        request = decode_from(api.request, version, frame, body)[0]
        exchange = Exchange(
            self, api, version, request, self._tick(), self._observer.now(), self.user, self.expires_s
        )
        self.pending[header.correlation_id] = exchange
        self._observer.received(exchange)

    def _answered(self, exchange: Exchange, frame: bytes) -> None:
        api, version = exchange.api, exchange.version
        is_flexible = api.response_header_version(version) == 1
        body = skip_tags(frame, 8, len(frame)) if is_flexible else 8
        exchange.response = decode_from(api.response, version, frame, body)[0]
        exchange.answered = self._tick()
        if isinstance(exchange.request, SaslAuthenticateRequest):
            self._authenticated(exchange.request, exchange.response)
        self._observer.answered(exchange)

    def _authenticated(self, request: SaslAuthenticateRequest, response: SaslAuthenticateResponse) -> None:
        """Begin the session of a PLAIN exchange, if it was accepted."""
        if not response.error_code:
            self.user = request.auth_bytes.split(b"\0")[1].decode()
            lifetime_s = response.session_lifetime_ms / 1000
            self.expires_s = self._observer.now() + lifetime_s if lifetime_s else None


class _ObservedTransport:
    """A transport whose written bytes are observed."""

    def __init__(self, transport: Any, owner: ObservedConnection) -> None:
        self._transport = transport
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._owner.written(bytes(data))
        self._transport.write(data)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))


def _frames(stream: bytearray) -> list[bytes]:
    """Remove the complete frames from the beginning of a stream and return them, with their length."""
    found, start = [], 0
    while len(stream) - start >= 4:
        stop = start + 4 + int.from_bytes(stream[start : start + 4], "big")
        if stop > len(stream):
            break
        found.append(bytes(stream[start:stop]))
        start = stop
    del stream[:start]
    return found
