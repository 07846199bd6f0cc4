"""JSON Web Key Sets: the public keys that verify access tokens, and when to fetch them again.

The set is an immutable value. `RefreshPolicy` decides, as Kafka's `RefreshingHttpsJwks`, when a key id that
is not in the set is a reason to fetch it anew: at most once a minute for each id, never for very long ones.
Fetches for all ids together are at least a second apart, so that invented ids cause no flood of requests.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALGORITHMS", "JsonWebKeySet", "MissingLibrary", "RefreshPolicy", "VerificationKey"]

ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "EC": frozenset(("ES256", "ES384", "ES512")),
    "OKP": frozenset(("EdDSA",)),
}
"""Signature algorithms by type of key. All are asymmetric: a public key never verifies an HMAC."""

MAX_KEY_SET_BYTES: Final = 1024 * 1024
MAX_KEY_ID_LENGTH: Final = 1_000
MISSING_KEY_PAUSE_MS: Final = 60_000
MIN_REFRESH_PAUSE_MS: Final = 1_000
"""Shortest time between two fetches because of unknown key ids."""
MAX_MISSING_KEYS: Final = 16


class MissingLibrary(Exception):
    """The library that verifies tokens is not installed."""


class VerificationKey(NamedTuple):
    """A public key: its id if it has one, its type, the only algorithm if it has one, and the key itself."""

    id: str | None
    type: str
    algorithm: str | None
    key: Any

    def verifies(self, algorithm: str) -> bool:
        """Return True if the key may verify signatures of this algorithm."""
        return algorithm in ALGORITHMS[self.type] and self.algorithm in (None, algorithm)


class JsonWebKeySet:
    """The keys of a JWKS document that can verify signatures."""

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[VerificationKey, ...] = ()) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"<key set: {', '.join(str(key.id) for key in self.keys) or 'empty'}>"

    @classmethod
    def parse(cls, document: bytes) -> JsonWebKeySet:
        """Parse a JWKS document; keys of other types, and those for encryption, are left out.

        Raises ValueError if the document is no key set, `MissingLibrary` without `konvene[oauth]`."""
        if len(document) > MAX_KEY_SET_BYTES:
            raise ValueError(f"the key set has {len(document)} bytes; at most {MAX_KEY_SET_BYTES} are read")
        try:
            content = json.loads(document)
        except (ValueError, RecursionError):
            raise ValueError("the key set is not JSON") from None
        rows = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ValueError("the key set has no list of keys")
        return cls(tuple(key for row in rows if (key := _key(row)) is not None))

    def candidates(self, key_id: str | None, algorithm: str) -> tuple[VerificationKey, ...]:
        """Return the keys that may have signed a token with this header."""
        fitting = (key for key in self.keys if key.verifies(algorithm))
        return tuple(key for key in fitting if key_id is None or key.id == key_id)

    def has(self, key_id: str) -> bool:
        """Return True if a key of the set has this id."""
        return any(key.id == key_id for key in self.keys)


def _key(row: object) -> VerificationKey | None:
    if not isinstance(row, dict) or str(row.get("kty")) not in ALGORITHMS or row.get("use", "sig") != "sig":
        return None
    try:
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError
    except ImportError:
        raise MissingLibrary(
            "access tokens of OAUTHBEARER are verified with PyJWT: pip install 'konvene[oauth]'"
        ) from None
    key_id, algorithm = row.get("kid"), row.get("alg")
    default = {"RSA": "RS256", "EC": None, "OKP": "EdDSA"}[row["kty"]]
    public = {
        name: value for name, value in row.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")
    }
    try:
        key = PyJWK(public, algorithm=default).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return VerificationKey(
        key_id if isinstance(key_id, str) else None,
        row["kty"],
        algorithm if isinstance(algorithm, str) else None,
        key,
    )


class RefreshPolicy:
    """Decides whether an unknown key id is a reason to fetch the key set now."""

    def __init__(self) -> None:
        self._missing: OrderedDict[str, int] = OrderedDict()
        self._next_ms = 0

    def __repr__(self) -> str:
        return f"<refresh policy: {len(self._missing)} missing keys>"

    def should_refresh(self, key_id: str, now_ms: int) -> bool:
        """Return True if the set is to be fetched for this id; the next time is a minute later."""
        is_paused = now_ms < self._next_ms or self._missing.get(key_id, now_ms) > now_ms
        if len(key_id) > MAX_KEY_ID_LENGTH or is_paused:
            return False
        self._next_ms = now_ms + MIN_REFRESH_PAUSE_MS
        self._missing[key_id] = now_ms + MISSING_KEY_PAUSE_MS
        self._missing.move_to_end(key_id)
        while len(self._missing) > MAX_MISSING_KEYS:
            self._missing.popitem(last=False)
        return True
