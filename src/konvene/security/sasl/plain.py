"""PLAIN (RFC 4616): user name and password in one message."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from konvene.security.sasl.errors import AuthenticationFailed
from konvene.security.sasl.mechanisms import Authenticated

__all__ = ["PlainClient", "PlainServer"]


class PlainServer:
    """Verifies a password; `users` has the password of each user (JAAS options `user_NAME`)."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, message: bytes) -> tuple[bytes, Authenticated | None]:
        """Return the result of the only message. Raises `AuthenticationFailed`."""
        parts = message.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._users.get(user)
        is_equal = compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_equal:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return b"", Authenticated(user)


class PlainClient:
    """Sends a user name and a password."""

    def __init__(self, user: str, password: str) -> None:
        if "\0" in user or "\0" in password:
            raise AuthenticationFailed("user name and password must not contain NUL")
        self._message = f"\0{user}\0{password}".encode()
        self.is_complete = False

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """Complete the exchange: the server has accepted the message."""
        self.is_complete = True
        return None
