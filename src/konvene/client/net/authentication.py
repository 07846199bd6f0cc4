"""The client's side of SASL over a connection, at its start and again before its session ends (KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konvene.client.errors import AuthenticationFailed
from konvene.errors import Errors
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from konvene.client.net.connection import Connection
    from konvene.client.security import ClientSecurity

__all__ = ["authenticate", "reauthentication_delay_s"]

WINDOW: Final = (0.85, 0.95)
"""Part of a session's lifetime after which it is renewed, as in Kafka's clients; the exact one is random."""


async def authenticate(connection: Connection, security: ClientSecurity, nonce: str) -> int:
    """Authenticate the connection; return the session's lifetime in milliseconds, 0 if it is unlimited.

    Raises `AuthenticationFailed`."""
    from konvene.security.sasl import errors

    handshake: SaslHandshakeResponse = await connection.send(
        SaslHandshakeRequest(mechanism=security.mechanism)
    )
    where = f"{connection.host}:{connection.port}"
    if handshake.error_code != Errors.NONE:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{where} does not offer the SASL mechanism {security.mechanism}; it offers {offered}"
        )
    exchange = security.sasl_client(nonce)
    message: bytes | None = exchange.start()
    lifetime_ms = 0
    while message is not None:
        response: SaslAuthenticateResponse = await connection.send(
            SaslAuthenticateRequest(auth_bytes=message)
        )
        if response.error_code != Errors.NONE:
            raise AuthenticationFailed(
                f"{where}: {response.error_message or Errors(response.error_code).name}"
            )
        lifetime_ms = response.session_lifetime_ms
        try:
            message = exchange.step(response.auth_bytes)
        except errors.AuthenticationFailed as error:
            raise AuthenticationFailed(f"{where}: {error}") from None
    return lifetime_ms


def reauthentication_delay_s(lifetime_ms: int, chance: float) -> float:
    """Return after how many seconds a session is renewed; `chance` is a random number from 0 to 1."""
    low, high = WINDOW
    return lifetime_ms / 1000 * (low + (high - low) * chance)
