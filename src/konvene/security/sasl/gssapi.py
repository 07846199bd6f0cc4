"""GSSAPI (RFC 4752): Kerberos tickets, both sides, as machines over a security context.

First the tokens of the security context are exchanged, as often as Kerberos needs. Then the server offers
security layers, and the client chooses one. As in Kafka the only offer is authentication without a layer:
later bytes are protected by TLS or not at all. The client may send an authorization id, which grants nothing:
the principal is always made of the authenticated name.

A context of the library `gssapi` is in `konvene.security.kerberos.contexts`; tests pass in their own."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials, RetriableFailure
from konvene.security.sasl.mechanisms import Authenticated

__all__ = ["GssapiClient", "GssapiServer", "SecurityContext", "SecurityContextError"]

NO_LAYER: Final = 1
"""Bit of the security layer that is none: authentication only."""
MAX_BUFFER_BYTES: Final = 65_536
"""Size of messages that the server accepts within a security layer, as Java sends it; of no effect."""
OFFER: Final = bytes((NO_LAYER,)) + MAX_BUFFER_BYTES.to_bytes(3, "big")
CHOICE: Final = bytes((NO_LAYER, 0, 0, 0))
"""The client's choice, with a buffer size of 0 and without an authorization id."""


class SecurityContextError(Exception):
    """A security context cannot be established, or a message was not protected by it."""

    def __init__(self, message: str, *, is_retriable: bool = False) -> None:
        super().__init__(message)
        self.is_retriable = is_retriable
        """Whether another try may succeed: a replayed ticket, or one that is not valid yet."""


class SecurityContext(Protocol):
    """One security context of GSS-API, of either side. Its methods raise `SecurityContextError`."""

    def step(self, token: bytes) -> bytes:
        """Process the peer's token, empty at the initiator's start; return the token for the peer, which
        may be empty."""

    @property
    def is_established(self) -> bool:
        """Return True if this side needs no more tokens."""

    @property
    def initiator_name(self) -> str:
        """Return the Kerberos name of the client, once the context is established."""

    def wrap(self, message: bytes) -> bytes:
        """Return the message with its integrity protected."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a protected message."""


class _State(Enum):
    CONTEXT = auto()
    """Tokens of the security context are exchanged."""
    OFFER = auto()
    """The server's last token was sent: the client's next message is empty."""
    CHOICE = auto()
    """The server has offered security layers."""
    COMPLETE = auto()


class GssapiServer:
    """Accepts a Kerberos ticket; `short_name` makes the principal's name of a Kerberos name, and raises
    ValueError if no rule applies."""

    def __init__(self, context: SecurityContext, short_name: Callable[[str], str]) -> None:
        self._context = context
        self._short_name = short_name
        self._state = _State.CONTEXT

    def __repr__(self) -> str:
        return f"<GSSAPI server: {self._state.name}>"

    def step(self, message: bytes) -> tuple[bytes | None, Authenticated | None]:
        """Return the next token, the offer of security layers, or the result without a challenge.

        Raises `InvalidCredentials` or `RetriableFailure`."""
        try:
            if self._state is _State.CONTEXT:
                return self._establish(message), None
            if self._state is _State.OFFER:
                if message:
                    raise InvalidCredentials("Handshake expecting no response data from client")
                return self._offer(), None
            return None, self._chosen(message)
        except SecurityContextError as error:
            if error.is_retriable:
                raise RetriableFailure(str(error)) from None
            raise InvalidCredentials(str(error)) from None

    def _establish(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if not self._context.is_established:
            return answer
        if not answer:
            return self._offer()
        self._state = _State.OFFER
        return answer

    def _offer(self) -> bytes:
        self._state = _State.CHOICE
        return self._context.wrap(OFFER)

    def _chosen(self, message: bytes) -> Authenticated:
        if self._state is _State.COMPLETE:
            raise InvalidCredentials("SASL authentication already complete")
        choice = self._context.unwrap(message)
        if len(choice) < len(CHOICE):
            raise InvalidCredentials(f"the choice of a security layer has {len(choice)} bytes")
        if not choice[0] & NO_LAYER:
            raise InvalidCredentials(f"Client selected unsupported protection: {choice[0]}")
        try:
            user = self._short_name(self._context.initiator_name)
        except ValueError as error:
            raise InvalidCredentials(str(error)) from None
        self._state = _State.COMPLETE
        return Authenticated(user)


class GssapiClient:
    """Proves its identity with a Kerberos ticket. `start` and `step` may block: they ask the KDC."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._has_chosen = False
        self.is_complete = False

    def __repr__(self) -> str:
        return "<GSSAPI client>"

    def start(self) -> bytes:
        """Return the first token. Raises `AuthenticationFailed` if there is no ticket for the broker."""
        try:
            return self._context.step(b"")
        except SecurityContextError as error:
            raise AuthenticationFailed(str(error)) from None

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next token, the choice of no security layer, or None after the server's last message.

        Raises `AuthenticationFailed`."""
        try:
            if self._has_chosen:
                self.is_complete = True
                return None
            if not self._context.is_established:
                return self._context.step(challenge)
            offer = self._context.unwrap(challenge)
            if len(offer) != len(OFFER) or not offer[0] & NO_LAYER:
                raise AuthenticationFailed("the broker requires a security layer of GSSAPI")
            self._has_chosen = True
            return self._context.wrap(CHOICE)
        except SecurityContextError as error:
            raise AuthenticationFailed(str(error)) from None
