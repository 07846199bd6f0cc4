"""OAUTHBEARER (RFC 7628): an access token in one message, both sides.

The messages carry key-value pairs between 0x01 bytes. A rejected token is answered with a JSON error, to
which the client sends one 0x01 byte; only then the exchange fails, as in Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from konvene.security.oauth.jwt import AccessToken, InvalidToken
from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials
from konvene.security.sasl.mechanisms import Authenticated

__all__ = ["OAuthBearerClient", "OAuthBearerServer"]

SEPARATOR: Final = "\x01"
_SASLNAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_KEY_VALUES = r"(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*"
_CLIENT_FIRST: Final = re.compile(rf"n,(?:a=({_SASLNAME}))?,\x01({_KEY_VALUES})\x01")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.A-Za-z0-9]+=*)")


class OAuthBearerServer:
    """Verifies an access token with `validate`, which raises `InvalidToken`."""

    def __init__(self, validate: Callable[[str], AccessToken]) -> None:
        self._validate = validate
        self._error = ""

    def step(self, message: bytes) -> tuple[bytes, Authenticated | None]:
        """Return the result, or the JSON error of a rejected token. Raises `AuthenticationFailed` or
        `InvalidCredentials`."""
        if self._error:
            raise AuthenticationFailed(self._error)
        authorization_id, token = _parse(message)
        try:
            access = self._validate(token)
        except InvalidToken:
            self._error = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._error.encode(), None
        if authorization_id not in (None, access.principal_name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id"
                f" ({authorization_id}) that is different from the token's principal name"
                f" ({access.principal_name})"
            )
        return b"", Authenticated(access.principal_name, access.expires_ms)


def _parse(message: bytes) -> tuple[str | None, str]:
    """Return the authorization id, if there is one, and the token of a client's first message."""
    try:
        match = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match[2].split(SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: 'auth' not specified")
    if auth[1].lower() != "bearer":
        raise InvalidCredentials(f"Invalid scheme in OAUTHBEARER client first message: {auth[1]}")
    authorization_id = match[1]
    if authorization_id is not None:
        authorization_id = authorization_id.replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth[2]


class OAuthBearerClient:
    """Sends an access token, and extensions if there are any."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = {"auth": f"Bearer {token}"} | dict(extensions or {})
        content = "".join(f"{name}={value}{SEPARATOR}" for name, value in pairs.items())
        self._message = f"n,,{SEPARATOR}{content}{SEPARATOR}".encode()
        self.is_complete = False

    def __repr__(self) -> str:
        return "<OAUTHBEARER client>"

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """Complete the exchange; a JSON error is acknowledged, and the server then fails the exchange."""
        if challenge:
            return SEPARATOR.encode()
        self.is_complete = True
        return None
