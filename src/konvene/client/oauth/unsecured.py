"""Unsecured access tokens (algorithm `none`) from options of a JAAS configuration, as Kafka's default login
handler of OAUTHBEARER makes them. Anyone can make one: brokers accept them in tests only."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["PREFIX", "unsecured_token"]

PREFIX: Final = "unsecuredLogin"
RESERVED: Final = ("iat", "exp")
DEFAULT_LIFETIME_S: Final = 3_600


def unsecured_token(options: Mapping[str, str], now_s: float) -> str:
    """Return the serialized token for the options of an OAuthBearerLoginModule. Raises ValueError."""
    try:
        lifetime_s = int(options.get(f"{PREFIX}LifetimeSeconds", DEFAULT_LIFETIME_S))
    except ValueError:
        raise ValueError(f"{PREFIX}LifetimeSeconds is not a number of seconds") from None
    claims: dict[str, Any] = {"exp": now_s + lifetime_s, "iat": now_s}
    for name, value in options.items():
        for kind, convert in _CLAIMS.items():
            prefix = f"{PREFIX}{kind}Claim_"
            if name.startswith(prefix) and len(name) > len(prefix):
                claim = name.removeprefix(prefix)
                if claim in RESERVED:
                    raise ValueError(f"Cannot explicitly set the '{claim}' claim")
                try:
                    claims[claim] = convert(value)
                except ValueError:
                    raise ValueError(f"{name} is not a number") from None
    subject = options.get(f"{PREFIX}PrincipalClaimName", "").strip() or "sub"
    if not isinstance(claims.get(subject), str) or not claims[subject].strip():
        raise ValueError(f"No principal name in JWT claim: {subject}; set {PREFIX}StringClaim_{subject}")
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _list(text: str) -> list[str]:
    """Split a list, whose first character is the separator."""
    return text[1:].split(text[0]) if len(text) > 1 else []


_CLAIMS: Final[Mapping[str, Any]] = {"String": str, "Number": float, "List": _list}


def _encoded(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")
