"""Validates access tokens of OAUTHBEARER, as Kafka 4.4's `BrokerJwtValidator`.

A token is a JSON Web Token with an asymmetric signature of one of the issuer's keys. `exp`, `iat` and the
subject are required; the issuer and the audience have to be the expected ones. Since Kafka 4.4 a broker
without an expected issuer and audience does not start, unless `allow.unverified` settings permit it.

Unsecured tokens (algorithm `none`) have a validator of their own, for tests: anyone can make one.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from konvene.security.oauth.keys import JsonWebKeySet

__all__ = [
    "AccessToken",
    "InvalidToken",
    "JwtSettings",
    "JwtValidator",
    "UnsecuredJwtValidator",
    "unverified_claims",
    "unverified_key_id",
]

MAX_TOKEN_BYTES: Final = 64 * 1024
PREFIX: Final = "sasl.oauthbearer."


class InvalidToken(Exception):
    """The access token is rejected; the message never contains the token."""


class AccessToken(NamedTuple):
    """A validated access token: the name of its principal, its scopes and when it expires."""

    principal_name: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


class JwtSettings(NamedTuple):
    """The settings of token validation, by Kafka's names below `sasl.oauthbearer.`."""

    expected_issuer: str | None = None
    expected_audience: frozenset[str] = frozenset()
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    clock_skew_seconds: int = 30
    checks_audience: bool = True
    """If False (`allow.unverified.audience`), a token of any audience passes where none is expected."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> JwtSettings:
        """Return the settings of a listener. Raises ValueError if the issuer or the audience is open."""
        issuer = settings[f"{PREFIX}expected.issuer"]
        audience = frozenset(settings[f"{PREFIX}expected.audience"] or ())
        for name, value in (("issuer", issuer), ("audience", audience)):
            if not value and not settings[f"{PREFIX}allow.unverified.{name}"]:
                raise ValueError(
                    f"{PREFIX}expected.{name} is required: without it tokens for other services are accepted"
                    f" ({PREFIX}allow.unverified.{name}=true permits that)"
                )
        return cls(
            issuer or None,
            audience,
            settings[f"{PREFIX}scope.claim.name"],
            settings[f"{PREFIX}sub.claim.name"],
            settings[f"{PREFIX}clock.skew.seconds"],
            checks_audience=not settings[f"{PREFIX}allow.unverified.audience"],
        )


class JwtValidator:
    """Validates signed tokens against the issuer's current keys."""

    def __init__(self, settings: JwtSettings, keys: Callable[[], JsonWebKeySet]) -> None:
        self._settings = settings
        self._keys = keys

    def validate(self, token: str, now_ms: int) -> AccessToken:
        """Return the validated token. Raises `InvalidToken`."""
        header, claims, signed, signature = _parse(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm.lower() == "none":
            raise InvalidToken("the token is not signed")
        if header.get("crit"):
            raise InvalidToken("the token has a critical header that is not understood")
        keys = self._keys().candidates(key_id if isinstance(key_id, str) else None, algorithm)
        if not keys:
            raise InvalidToken(
                f"no key of the key set has id {_shown(key_id)} and algorithm {_shown(algorithm)}"
            )
        if not any(_is_signed_by(key.key, algorithm, signed, signature) for key in keys):
            raise InvalidToken("the signature does not match")
        self._check_issuer_and_audience(claims)
        return _access_token(claims, self._settings, now_ms)

    def _check_issuer_and_audience(self, claims: Mapping[str, Any]) -> None:
        settings = self._settings
        if settings.expected_issuer is not None and claims.get("iss") != settings.expected_issuer:
            raise InvalidToken(f"the issuer is {_shown(claims.get('iss'))}, not {settings.expected_issuer}")
        audience = claims.get("aud", ())
        values = {audience} if isinstance(audience, str) else set(_texts(audience, "aud"))
        if settings.expected_audience:
            if not values & settings.expected_audience:
                expected = ", ".join(sorted(settings.expected_audience))
                raise InvalidToken(f"the audience is {_shown(sorted(values))}, not {expected}")
        elif values and settings.checks_audience:
            raise InvalidToken("the token has an audience, and none is expected")


class UnsecuredJwtValidator:
    """Accepts unsigned tokens, which anyone can make: for tests only, as Kafka's unsecured validator."""

    def __init__(self, settings: JwtSettings | None = None) -> None:
        self._settings = settings or JwtSettings()

    def validate(self, token: str, now_ms: int) -> AccessToken:
        """Return the validated token. Raises `InvalidToken`."""
        header, claims, _, signature = _parse(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("only unsigned tokens (algorithm none) are accepted here")
        return _access_token(claims, self._settings, now_ms, needs_issue_time=False)


def unverified_key_id(token: str) -> str | None:
    """Return the key id in a token's header, which is not verified; None if it has none."""
    try:
        key_id = _parse(token)[0].get("kid")
    except InvalidToken:
        return None
    return key_id if isinstance(key_id, str) else None


def unverified_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a token, nothing verified, as a client reads its own. Raises `InvalidToken`."""
    return _parse(token)[1]


def _parse(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any], bytes, bytes]:
    """Return header, claims, signed bytes and signature of a serialized token, nothing verified."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"the token has {len(token)} characters; at most {MAX_TOKEN_BYTES} are accepted")
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise InvalidToken("the token does not have three parts")
    header, claims = (_json(part) for part in parts[:2])
    return header, claims, f"{parts[0]}.{parts[1]}".encode(), _decode(parts[2])


def _decode(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of the token is not base64url") from None


def _json(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_decode(part))
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of the token is not a JSON object")
    return value


def _is_signed_by(key: Any, algorithm: str, signed: bytes, signature: bytes) -> bool:
    from jwt.algorithms import get_default_algorithms

    try:
        return bool(get_default_algorithms()[algorithm].verify(signed, key, signature))
    except (KeyError, ValueError, TypeError):
        return False


def _access_token(
    claims: Mapping[str, Any], settings: JwtSettings, now_ms: int, *, needs_issue_time: bool = True
) -> AccessToken:
    """Check times, subject and scopes, with the clock skew that the settings allow."""
    skew_ms = settings.clock_skew_seconds * 1000
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("the claim exp is missing")
    if expires_ms + skew_ms <= now_ms:
        raise InvalidToken("the token has expired")
    not_before_ms = _time_ms(claims, "nbf")
    if not_before_ms is not None and not_before_ms - skew_ms > now_ms:
        raise InvalidToken("the token is not valid yet")
    issued_ms = _time_ms(claims, "iat")
    if issued_ms is None and needs_issue_time:
        raise InvalidToken("the claim iat is missing")
    if issued_ms is not None and issued_ms - skew_ms > now_ms:
        raise InvalidToken("the token was issued in the future")
    subject = claims.get(settings.sub_claim_name)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the claim {settings.sub_claim_name} is missing or empty")
    scope = claims.get(settings.scope_claim_name, ())
    scopes = (scope,) if isinstance(scope, str) else _texts(scope, settings.scope_claim_name)
    return AccessToken(subject.strip(), expires_ms, frozenset(map(str.strip, scopes)))


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InvalidToken(f"the claim {name} is not a time in seconds")
    return int(value * 1000)


def _texts(value: object, claim: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InvalidToken(f"the claim {claim} is not text")
    return tuple(value)


def _shown(value: object) -> str:
    """Return a value of the token for a message, shortened."""
    return repr(value)[:200]
