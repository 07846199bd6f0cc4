"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, and their credentials.

The password never reaches the server, which stores a salt, a number of iterations and two keys derived from
them. An unknown user gets a salt of its own, derived from a secret, and fails like a wrong password, so
that user names cannot be probed. With the extension `tokenauth=true` the user is the id of a delegation
token, and the password its HMAC in base64 (KIP-48)."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from konvene.security.sasl.credentials import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, ScramCredential
from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials
from konvene.security.sasl.mechanisms import Authenticated

__all__ = [
    "MAX_ITERATIONS",
    "MECHANISMS",
    "MIN_ITERATIONS",
    "ScramClient",
    "ScramCredential",
    "ScramServer",
    "ScramUser",
    "credential_of",
]

TOKEN_AUTH: Final = "tokenauth"

_SASLNAME = r"(?:[^,=\0]|=2C|=3D)+"
_VALUE = r"[^,\0]+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=({_SASLNAME}))?,(?:m={_VALUE},)?n=({_SASLNAME}),r=([!-+\--~]+)((?:,[A-Za-z]+={_VALUE})*)"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)(?:,[A-Za-z]+={_VALUE})*),p=([A-Za-z0-9+/=]+)"
)
_SERVER_FIRST: Final = re.compile(rf"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d+)(?:,[A-Za-z]+={_VALUE})*")
_SERVER_FINAL: Final = re.compile(rf"(?:e=({_VALUE})|v=([A-Za-z0-9+/=]+))(?:,[A-Za-z]+={_VALUE})*")


class ScramUser(NamedTuple):
    """A user that may log in: the name of its principal, its credential, and when a token expires."""

    credential: ScramCredential
    principal_name: str
    expires_ms: int | None = None


def credential_of(
    mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Derive a credential from a password. Takes milliseconds of CPU time."""
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Derive a credential from a salted password, as AlterUserScramCredentials transfers it."""
    function = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", function)
    return ScramCredential(
        salt,
        hashlib.new(function, client_key).digest(),
        hmac.digest(salted, b"Server Key", function),
        iterations,
    )


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _decoded(value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidCredentials("a SCRAM message with invalid base64") from None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise InvalidCredentials("a SCRAM message that is not UTF-8") from None


class ScramServer:
    """Verifies a client with SCRAM.

    `find_user(name, is_token)` returns the user or None; `nonce` is random text for this exchange; `secret`
    derives the salts of unknown users."""

    def __init__(
        self, mechanism: str, find_user: Callable[[str, bool], ScramUser | None], nonce: str, secret: bytes
    ) -> None:
        self._mechanism = mechanism
        self._find_user = find_user
        self._nonce = nonce
        self._secret = secret
        self._user: ScramUser | None = None
        self._credential: ScramCredential | None = None
        self._header = self._bare = self._server_first = ""
        self._is_token = False

    def step(self, message: bytes) -> tuple[bytes, Authenticated | None]:
        """Answer the client's first or final message. Raises `AuthenticationFailed` or
        `InvalidCredentials`."""
        return self._first(_text(message)) if self._credential is None else self._final(_text(message))

    def _first(self, message: str) -> tuple[bytes, None]:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise InvalidCredentials("Invalid SCRAM client first message format")
        authorization_id, escaped, client_nonce, extensions = match.groups()
        self._bare = message[message.index(",", 2) + 1 :]
        self._header = message[: -len(self._bare)]
        name = _unescaped(escaped)
        options = dict(part.split("=", 1) for part in extensions.split(",") if part)
        self._is_token = options.get(TOKEN_AUTH, "").lower() == "true"
        if authorization_id is not None and _unescaped(authorization_id) != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._user = self._find_user(name, self._is_token)
        self._credential = self._dummy(name) if self._user is None else self._user.credential
        self._nonce = client_nonce + self._nonce
        salt = b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode(), None

    def _dummy(self, name: str) -> ScramCredential:
        """Return a credential that no password matches, always the same for a name."""
        key = hmac.digest(self._secret, name.encode(), "sha512")
        return ScramCredential(key[:16], key[16:48], key[32:], MIN_ITERATIONS)

    def _final(self, message: str) -> tuple[bytes, Authenticated | None]:
        credential = self._credential
        assert credential is not None
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise InvalidCredentials("Invalid SCRAM client final message format")
        without_proof, binding, nonce, proof_text = match.groups()
        if _decoded(binding) != self._header.encode():
            raise InvalidCredentials("a SCRAM message with another channel binding")
        if not hmac.compare_digest(nonce, self._nonce):
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        function = MECHANISMS[self._mechanism]
        auth_message = f"{self._bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, auth_message, function)
        proof = _decoded(proof_text)
        if len(proof) != len(signature):
            raise InvalidCredentials("Invalid client credentials")
        stored_key = hashlib.new(function, _xor(proof, signature)).digest()
        matches = hmac.compare_digest(stored_key, credential.stored_key)
        if not matches or self._user is None:
            raise InvalidCredentials("Invalid client credentials")
        server_signature = hmac.digest(credential.server_key, auth_message, function)
        user = self._user
        return (
            b"v=" + b64encode(server_signature),
            Authenticated(user.principal_name, user.expires_ms, self._is_token),
        )


class ScramClient:
    """Proves that it knows a password, and verifies that the server knows the credential."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = f",{TOKEN_AUTH}=true" if is_token else ""
        self._bare = f"n={_escaped(user)},r={nonce}{extension}"
        self._server_signature: bytes | None = None
        self.is_complete = False

    def __repr__(self) -> str:
        return f"<{self._mechanism} client>"

    def start(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Answer the server's first message, then verify its final one. Raises `AuthenticationFailed`."""
        text = _text(challenge)
        if self._server_signature is None:
            return self._final(text)
        self._verify(text)
        return None

    def _final(self, challenge: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(challenge)
        if match is None:
            raise AuthenticationFailed("Invalid SCRAM server first message format")
        nonce, salt, iterations = match[1], _decoded(match[2]), int(match[3][:9])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("Invalid server nonce: does not start with client nonce")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"Requested iterations {iterations} is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}"
                f" for {self._mechanism}"
            )
        function = MECHANISMS[self._mechanism]
        salted = hashlib.pbkdf2_hmac(function, self._password.encode(), salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        auth_message = f"{self._bare},{challenge},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", function)
        stored_key = hashlib.new(function, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, auth_message, function))
        server_key = hmac.digest(salted, b"Server Key", function)
        self._server_signature = hmac.digest(server_key, auth_message, function)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: str) -> None:
        match = _SERVER_FINAL.fullmatch(challenge)
        if match is None:
            raise AuthenticationFailed("Invalid SCRAM server final message format")
        if match[1] is not None:
            raise AuthenticationFailed(
                f"Sasl authentication using {self._mechanism} failed with error: {match[1]}"
            )
        assert self._server_signature is not None
        if not hmac.compare_digest(_decoded(match[2]), self._server_signature):
            raise AuthenticationFailed("Invalid server signature in server final message")
        self.is_complete = True
