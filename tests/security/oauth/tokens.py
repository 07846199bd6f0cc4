"""Makes signed access tokens and key sets for tests."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm, get_default_algorithms

NOW_MS = 1_000_000_000
CLAIMS = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW_MS // 1000,
    "exp": NOW_MS // 1000 + 60,
}


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """Return the private RSA key of the tests."""
    return rsa.generate_private_key(65_537, 2_048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    """Return the private P-256 key of the tests."""
    return ec.generate_private_key(ec.SECP256R1())


def encoded(value: object) -> str:
    """Return bytes, or a value as JSON, in base64url without padding."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).decode().rstrip("=")


def token(
    claims: dict[str, Any] | None = None,
    algorithm: str = "RS256",
    key: Any = None,
    header: dict[str, Any] | None = None,
) -> str:
    """Return a token with `CLAIMS`, changed by `claims` (None removes one), signed with `key`."""
    content = {name: value for name, value in (CLAIMS | (claims or {})).items() if value is not None}
    signed = f"{encoded({'alg': algorithm, 'kid': 'k1'} | (header or {}))}.{encoded(content)}"
    if algorithm == "none":
        return f"{signed}."
    signer = get_default_algorithms()[algorithm]
    return f"{signed}.{encoded(signer.sign(signed.encode(), rsa_key() if key is None else key))}"


def key_set(*extra: dict[str, Any]) -> bytes:
    """Return the JWKS document of the RSA key (k1) and the P-256 key (k2), and `extra` rows."""
    rows = [
        RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True) | {"kid": "k1", "use": "sig"},
        ECAlgorithm.to_jwk(ec_key().public_key(), as_dict=True) | {"kid": "k2"},
        *extra,
    ]
    return json.dumps({"keys": rows}).encode()
