"""A connection to a SASL listener: authenticates before it serves requests, and again later (KIP-368).

As Kafka's `SocketServer` and `SaslServerAuthenticator`:

- Until the client is authenticated, every frame goes to the machine of
`konvene.security.sasl.authenticator`. No
  frame may be longer than `sasl.server.max.receive.size`.
- After a failure nothing more is read, and the connection is closed after
  `connection.failed.authentication.delay.ms`, so that guessing is slow.
- If the session has an end, a SaslHandshake begins a re-authentication, at most once a second. After the
end any
  other request closes the connection, and no heartbeat is held back beyond it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from konvene.broker.net.connection import Connection
from konvene.broker.net.frames import read_request
from konvene.broker.net.supported_apis import unsupported_version
from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.runtime.coordinator import RequestContext
from konvene.security.sasl.authenticator import SaslServerAuthenticator
from konvene.security.session import Session

if TYPE_CHECKING:
    from konvene.broker.net.endpoint import Endpoint
    from konvene.broker.net.network import Network
    from konvene.broker.net.response_cache import CachedResponse
    from konvene.security.sasl.authenticator import Failure, SaslListener

log = logging.getLogger("konvene.connection")

SASL_HANDSHAKE = b"\0\x11"
MIN_REAUTHENTICATION_INTERVAL_S = 1.0


class SaslConnection(Connection):
    """A connection whose client authenticates with SASL."""

    __slots__ = ("_authenticator", "_expires_at_s", "_reauthenticated_at_s", "_sasl")

    def __init__(self, network: Network, endpoint: Endpoint, sasl: SaslListener) -> None:
        super().__init__(network, endpoint)
        self._sasl = sasl
        self._max_frame_bytes = sasl.max_receive_bytes
        self._authenticator: SaslServerAuthenticator | None = SaslServerAuthenticator(
            sasl, self._api_versions
        )
        self._expires_at_s: float | None = None  # End of the session, in the loop's time.
        self._reauthenticated_at_s: float | None = None

    @property
    def _frame_limit(self) -> str:
        if self._authenticator is None:
            return super()._frame_limit
        return f"sasl.server.max.receive.size is {self._max_frame_bytes}"

    def _process(self, frame: bytes | bytearray, end: int) -> None:
        if self._authenticator is None and self._expires_at_s is not None:
            now_s = self._network.loop.time()
            if frame[4:6] == SASL_HANDSHAKE and self._may_reauthenticate(now_s):
                self._reauthenticated_at_s = now_s
                self._authenticator = SaslServerAuthenticator(self._sasl, self._api_versions, self.session)
            elif now_s > self._expires_at_s:
                log.info("%s: closed: the session of %s has expired", self._host, self.session.principal)
                self._transport.close()
                return
        if self._authenticator is None:
            super()._process(frame, end)
        else:
            self._authenticate(self._authenticator, bytes(frame[:end]))

    def _may_reauthenticate(self, now_s: float) -> bool:
        last_s = self._reauthenticated_at_s
        return last_s is None or now_s - last_s >= MIN_REAUTHENTICATION_INTERVAL_S

    def _authenticate(self, authenticator: SaslServerAuthenticator, frame: bytes) -> None:
        self.active_at = self._network.loop.time()
        step = authenticator.receive(frame, self._network.wall_clock_ms())
        if step.failure is not None:
            self._reject(step.failure, step.response)
            return
        if step.session is not None:
            self._authenticated(step.session)
        if step.response is not None:
            self._transport.write(step.response)
        self._busy = False

    def _authenticated(self, session: Session) -> None:
        self._authenticator = None
        self._max_frame_bytes = self._network.max_request_bytes
        self._expires_at_s = None
        if session.expires_at_ms is not None:
            remaining_ms = session.expires_at_ms - self._network.wall_clock_ms()
            self._expires_at_s = self._network.loop.time() + remaining_ms / 1000
        self._begin_session(session)

    def _reject(self, failure: Failure, response: bytes | None) -> None:
        """Log a failure, and close the connection after the delay. The connection stays busy until then."""
        log.info("%s: failed authentication: %s", self._host, failure.reason)
        if response is not None and not failure.delays_response:
            self._transport.write(response)
            response = None
        self._transport.pause_reading()
        self._network.loop.call_later(self._sasl.failure_delay_ms / 1000, self._close_rejected, response)

    def _close_rejected(self, response: bytes | None) -> None:
        if self._transport.is_closing():
            return
        if response is not None:
            self._transport.write(response)
        self._transport.close()

    def _api_versions(self, frame: bytes) -> tuple[bytes, bool]:
        """Return the response to an ApiVersions frame, and whether it was accepted."""
        header, route, request = read_request(self._network.routes, frame, len(frame))
        if not isinstance(request, ApiVersionsRequest):
            return b"".join(route.write(0, header.correlation_id, unsupported_version())), False
        context = RequestContext(header.api_version, header.client_id, self._host, api_key=header.api_key)
        response = route.handler(request, context)
        self._heartbeats.software = request.client_software_name, request.client_software_version
        parts = route.write(header.api_version, header.correlation_id, response)
        return b"".join(parts), response.error_code == Errors.NONE

    def _hold(self, cached: CachedResponse, frame: bytes, held_ms: int) -> bool:
        """Put the heartbeat into the purgatory, no longer than until the end of the session."""
        if self._expires_at_s is not None:
            held_ms = min(held_ms, int((self._expires_at_s - self._network.loop.time()) * 1000))
            if held_ms <= 0:
                return False
        return super()._hold(cached, frame, held_ms)
