"""The stored credentials of SCRAM. Their derivation is in `scram`, which a plaintext broker does not load."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["MAX_ITERATIONS", "MECHANISMS", "MIN_ITERATIONS", "ScramCredential"]

MECHANISMS: Final[Mapping[str, str]] = MappingProxyType(
    {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
)
"""Hash function by mechanism."""
MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384


class ScramCredential(NamedTuple):
    """What the server stores of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<SCRAM credential: {self.iterations} iterations>"
