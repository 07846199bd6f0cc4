"""The broker's side of SASL as a pure machine: frames in; frames, a session or a failure out.

As Kafka's `SaslServerAuthenticator`:

```text
  VERSIONS_OR_HANDSHAKE ──ApiVersions──► HANDSHAKE ──SaslHandshake──► AUTHENTICATE ──► COMPLETE
          └──────────────────SaslHandshake────────────────────────────────▲
```

After SaslHandshake v0 the mechanism's messages are bare frames; after v1 they are SaslAuthenticate
requests. A failure ends the exchange; the connection is closed after its response, if it has one.

A re-authentication (KIP-368) begins at SaslHandshake, and keeps mechanism and principal. The session ends
with the credential, or `connections.max.reauth.ms` after the authentication, whichever is first."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from konvene.codec.compile import decode_from, encode_into
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import API_KEYS, API_VERSIONS
from konvene.messages.header import RequestHeader
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from konvene.security.principal import USER, KafkaPrincipal, parse_principal
from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials, RetriableFailure
from konvene.security.sasl.mechanisms import Authenticated, SaslServer
from konvene.security.session import SecurityProtocol, Session

__all__ = ["Failure", "SaslListener", "SaslServerAuthenticator", "Step"]

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
FIRST_VERSION_WITH_REQUESTS: Final = 1
"""First version of SaslHandshake after which the client sends SaslAuthenticate requests."""

_LENGTH_AND_CORRELATION = struct.Struct(">ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """The mechanisms of a listener, replaced as a whole when settings change."""

    name: str
    security_protocol: SecurityProtocol
    mechanisms: Mapping[str, Callable[[], SaslServer]]
    """A function that begins an exchange, by enabled mechanism."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """`connections.max.reauth.ms` by mechanism; 0 or missing: sessions end with their credential only."""
    max_receive_bytes: int = 524_288
    failure_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`."""


class Failure(NamedTuple):
    """The end of an exchange: the connection is closed after the response."""

    reason: str
    """Reason for the log."""
    delays_response: bool = False
    """Whether the response waits for `failure_delay_ms`; closing always does."""


class Step(NamedTuple):
    """What one received frame leads to."""

    response: bytes | None = None
    """A frame to send, with its length prefix."""
    session: Session | None = None
    """The session that begins now: the exchange is complete."""
    failure: Failure | None = None


class _State(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


ApiVersionsAnswer = Callable[[bytes], tuple[bytes, bool]]
"""A function that answers an ApiVersions frame: with a response frame, and whether it was accepted."""


class SaslServerAuthenticator:
    """One exchange of one connection; `previous` is the session that a re-authentication renews."""

    def __init__(
        self, listener: SaslListener, answer_api_versions: ApiVersionsAnswer, previous: Session | None = None
    ) -> None:
        self._listener = listener
        self._answer_api_versions = answer_api_versions
        self._previous = previous
        self._state = _State.VERSIONS_OR_HANDSHAKE if previous is None else _State.HANDSHAKE
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._uses_requests = False

    def __repr__(self) -> str:
        return f"<authenticator of {self._listener.name}: {self._state.name}>"

    def receive(self, frame: bytes, now_ms: int) -> Step:
        """Decide one frame, which includes its length prefix. `now_ms`: the wall clock."""
        if self._state is _State.BAD_MECHANISM:
            assert self._previous is not None
            return self._fail(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._previous.mechanism}'"
            )
        try:
            if self._state is not _State.AUTHENTICATE:
                return self._negotiate(frame)
            return (
                self._authenticate_request(frame, now_ms)
                if self._uses_requests
                else self._message(frame, now_ms)
            )
        except CodecError as error:
            return self._fail(f"malformed request during the SASL exchange: {error}")
        except RetriableFailure as error:
            return self._fail(str(error))

    # --- ApiVersions and SaslHandshake ---

    def _negotiate(self, frame: bytes) -> Step:
        header, body = _read_header(frame)
        key = header.request_api_key
        if key == API_VERSIONS:
            if self._state is not _State.VERSIONS_OR_HANDSHAKE:
                return self._fail(
                    "Unexpected ApiVersions request received during SASL authentication state"
                    f" {self._state.name}"
                )
            response, is_accepted = self._answer_api_versions(frame)
            if is_accepted:
                self._state = _State.HANDSHAKE
            return Step(response)
        if key != SASL_HANDSHAKE:
            name = API_KEYS[key].name if key in API_KEYS else key
            return self._fail(f"Received unexpected Kafka request of type {name} during SASL handshake.")
        version = header.request_api_version
        request = decode_from(SaslHandshakeRequest, version, frame, body, lenient=True)[0]
        self._mechanism, enabled = request.mechanism, self._listener.mechanisms
        start = enabled.get(request.mechanism)
        error = Errors.UNSUPPORTED_SASL_MECHANISM if start is None else Errors.NONE
        answer = SaslHandshakeResponse(error_code=error, mechanisms=tuple(enabled))
        response = _frame(header, answer, version, is_flexible=False)
        if start is None:
            failed = self._fail(f"Unsupported SASL mechanism {request.mechanism}")
            return failed if self._previous is not None else failed._replace(response=response)
        self._uses_requests = version >= FIRST_VERSION_WITH_REQUESTS
        if self._previous is not None and self._previous.mechanism != request.mechanism:
            self._state = _State.BAD_MECHANISM
        else:
            self._server = start()
            self._state = _State.AUTHENTICATE
        return Step(response)

    # --- the mechanism ---

    def _authenticate_request(self, frame: bytes, now_ms: int) -> Step:
        header, body = _read_header(frame)
        key, version = header.request_api_key, header.request_api_version
        if key != SASL_AUTHENTICATE:
            name = API_KEYS[key].name if key in API_KEYS else key
            return self._fail(f"Unexpected Kafka request of type {name} during SASL authentication.")
        request = decode_from(SaslAuthenticateRequest, version, frame, body, lenient=True)[0]
        is_flexible = version >= API_KEYS[SASL_AUTHENTICATE].first_flexible
        try:
            challenge, result = self._step(request.auth_bytes)
            session, lifetime_ms = self._session(result, now_ms)
        except AuthenticationFailed as error:
            answer = SaslAuthenticateResponse(
                error_code=Errors.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
            failed = self._fail(str(error), delays_response=True)
            return failed._replace(response=_frame(header, answer, version, is_flexible=is_flexible))
        answer = SaslAuthenticateResponse(
            error_message="",
            auth_bytes=challenge or b"",
            session_lifetime_ms=lifetime_ms if version >= FIRST_VERSION_WITH_REQUESTS else 0,
        )
        return Step(_frame(header, answer, version, is_flexible=is_flexible), session)

    def _message(self, frame: bytes, now_ms: int) -> Step:
        """Decide a bare message of the mechanism, after SaslHandshake v0."""
        try:
            challenge, result = self._step(frame[4:])
            session, _ = self._session(result, now_ms)
        except AuthenticationFailed as error:
            return self._fail(str(error))
        response = None if challenge is None else len(challenge).to_bytes(4, "big") + challenge
        return Step(response, session)

    def _step(self, message: bytes) -> tuple[bytes | None, Authenticated | None]:
        assert self._server is not None
        try:
            return self._server.step(message)
        except InvalidCredentials:
            during = "authentication" if self._previous is None else "re-authentication"
            raise AuthenticationFailed(
                f"Authentication failed during {during} due to invalid credentials with SASL mechanism"
                f" {self._mechanism}"
            ) from None

    def _session(self, result: Authenticated | None, now_ms: int) -> tuple[Session | None, int]:
        """Return the session and its lifetime in ms (0: unlimited) if the exchange is complete.

        Raises `AuthenticationFailed` if a re-authentication has another principal."""
        if result is None:
            return None, 0
        principal = parse_principal(result.user) if result.is_token else KafkaPrincipal(USER, result.user)
        previous = self._previous
        if previous is not None and previous.principal != principal:
            old = previous.principal
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {old.type}.{old.name}:"
                f" {principal.type}.{principal.name}"
            )
        self._state = _State.COMPLETE
        limits = []
        if result.expires_ms is not None:
            limits.append(result.expires_ms - now_ms)
        max_reauth_ms = self._listener.max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        lifetime_ms = max(0, min(limits)) if limits else 0
        session = Session(
            principal,
            self._listener.name,
            self._listener.security_protocol,
            is_token_authenticated=result.is_token,
            mechanism=self._mechanism,
            expires_at_ms=now_ms + lifetime_ms if limits else None,
        )
        return session, lifetime_ms

    def _fail(self, reason: str, *, delays_response: bool = False) -> Step:
        self._state = _State.FAILED
        return Step(failure=Failure(reason, delays_response))


def _read_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Return the header of a frame and the position of the body. Raises `CodecError`."""
    key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big", signed=True)
    api = API_KEYS.get(key)
    is_flexible = api is not None and key != SASL_HANDSHAKE and version >= api.first_flexible
    return decode_from(RequestHeader, 2 if is_flexible else 1, frame, 4, lenient=True)


def _frame(header: RequestHeader, response: Struct, version: int, *, is_flexible: bool) -> bytes:
    parts = [b"\0"] if is_flexible else []
    encode_into(response, version, parts)
    body = b"".join(parts)
    return _LENGTH_AND_CORRELATION.pack(4 + len(body), header.correlation_id) + body
