"""The client's side of SASL over a connection, at its start and again before its session ends (KIP-368)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from konvene.client.errors import AuthenticationFailed, ClientError
from konvene.errors import Errors
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from konvene.client.net.connection import Connection
    from konvene.client.security import ClientSecurity, TokenProvider

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
    token = ""
    if security.token_provider is not None:
        token = await _token(security.token_provider, where, connection.request_timeout_ms)
    exchange = security.sasl_client(nonce, token)
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


async def _token(provider: TokenProvider, where: str, timeout_ms: int) -> str:
    """Return an access token of the provider, which may block. Raises `AuthenticationFailed`.

    It runs in a thread that ends with the process, so that an endpoint that hangs delays no exit."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[str] = loop.create_future()

    def settle(token: str, error: Exception | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(token)
        else:
            result.set_exception(error)

    def work() -> None:
        token, failure = "", None
        try:
            token = provider()
        except Exception as error:  # A program's own function may raise anything.
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, token, failure)

    threading.Thread(target=work, name="konvene-access-token", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await result
    except TimeoutError:
        raise AuthenticationFailed(f"{where}: no access token within {timeout_ms} ms") from None
    except ClientError:
        raise
    except Exception as error:
        raise AuthenticationFailed(f"{where}: no access token: {type(error).__name__}: {error}") from error


def reauthentication_delay_s(lifetime_ms: int, chance: float) -> float:
    """Return after how many seconds a session is renewed; `chance` is a random number from 0 to 1."""
    low, high = WINDOW
    return lifetime_ms / 1000 * (low + (high - low) * chance)
