"""The client's side of SASL over a connection, at its start and again before its session ends (KIP-368)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from konvene.client.errors import AuthenticationFailed, ClientError
from konvene.errors import Errors
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from konvene.client.net.connection import Connection
    from konvene.client.security import ClientSecurity, TokenProvider

__all__ = ["authenticate", "reauthentication_delay_s"]

Result = TypeVar("Result")

WINDOW: Final = (0.85, 0.95)
"""Part of a session's lifetime after which it is renewed, as in Kafka's clients; the exact one is random."""


async def authenticate(connection: Connection, security: ClientSecurity, nonce: str) -> int:
    """Authenticate the connection; return the session's lifetime in milliseconds, 0 if it is unlimited.

    Raises `AuthenticationFailed`."""
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
    exchange = security.sasl_client(nonce, token, host=connection.host)
    message: bytes | None = await _step(connection, security, exchange.start)
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
        message = await _step(connection, security, exchange.step, response.auth_bytes)
    return lifetime_ms


async def _step(
    connection: Connection, security: ClientSecurity, step: Callable[..., Result], *arguments: bytes
) -> Result:
    """Return the result of a step of the exchange. Raises `AuthenticationFailed`."""
    from konvene.security.sasl import errors

    where = f"{connection.host}:{connection.port}"
    timeout_ms = connection.request_timeout_ms
    try:
        if not security.blocks:
            return step(*arguments)
        return await _in_thread(lambda: step(*arguments), timeout_ms)
    except errors.AuthenticationFailed as error:
        raise AuthenticationFailed(f"{where}: {error}") from None
    except TimeoutError:
        raise AuthenticationFailed(f"{where}: no Kerberos ticket within {timeout_ms} ms") from None


async def _token(provider: TokenProvider, where: str, timeout_ms: int) -> str:
    """Return an access token of the provider, which may block. Raises `AuthenticationFailed`."""
    try:
        return await _in_thread(provider, timeout_ms)
    except TimeoutError:
        raise AuthenticationFailed(f"{where}: no access token within {timeout_ms} ms") from None
    except ClientError:
        raise
    except Exception as error:
        raise AuthenticationFailed(f"{where}: no access token: {type(error).__name__}: {error}") from error


async def _in_thread(function: Callable[[], Result], timeout_ms: int) -> Result:
    """Return the result of a function that may block. Raises what it raises, or TimeoutError.

    It runs in a thread that ends with the process, so that an endpoint that hangs delays no exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(settle_future: Callable[[Any], None], value: object) -> None:
        if not future.done():
            settle_future(value)

    def work() -> None:
        try:
            settled: tuple[Callable[[Any], None], object] = future.set_result, function()
        except Exception as error:  # A program's own function may raise anything.
            settled = future.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *settled)

    threading.Thread(target=work, name="konvene-authentication", daemon=True).start()
    async with asyncio.timeout(timeout_ms / 1000):
        return await future


def reauthentication_delay_s(lifetime_ms: int, chance: float) -> float:
    """Return after how many seconds a session is renewed; `chance` is a random number from 0 to 1."""
    low, high = WINDOW
    return lifetime_ms / 1000 * (low + (high - low) * chance)
