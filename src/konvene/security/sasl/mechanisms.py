"""The interfaces of SASL mechanisms: a server that verifies a client, and a client that proves its
identity."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["Authenticated", "SaslClient", "SaslServer"]


class Authenticated(NamedTuple):
    """The result of a mechanism: the authorized user."""

    user: str
    """Name of the user; for a delegation token its owner, written as `type:name`."""
    expires_ms: int | None = None
    """Wall clock time at which the credential ends (a token), in milliseconds; None: never."""
    is_token: bool = False
    """Whether the client used a delegation token."""


class SaslServer(Protocol):
    """One exchange of a mechanism on the side of the broker."""

    def step(self, message: bytes) -> tuple[bytes | None, Authenticated | None]:
        """Return the challenge for a client's message, and the result once the exchange is complete.

        The challenge is None if the mechanism has no more messages. Raises `AuthenticationFailed`,
        `InvalidCredentials` or `RetriableFailure`."""


class SaslClient(Protocol):
    """One exchange of a mechanism on the side of the client."""

    def start(self) -> bytes:
        """Return the first message."""

    def step(self, challenge: bytes) -> bytes | None:
        """Return the answer to a challenge, None if there is none to send. Raises `AuthenticationFailed`."""

    @property
    def is_complete(self) -> bool:
        """Return True if the exchange is complete and the server has proved what it has to."""
