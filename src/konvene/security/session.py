"""The session of an authenticated connection: its principal, its listener and when it expires."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from konvene.security.principal import ANONYMOUS, KafkaPrincipal

__all__ = ["ANONYMOUS_SESSION", "SecurityProtocol", "Session"]


class SecurityProtocol(Enum):
    """Kafka's security protocols, by name."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Session(NamedTuple):
    """The identity of a connection after authentication; a re-authentication replaces it."""

    principal: KafkaPrincipal = ANONYMOUS
    listener: str = "PLAINTEXT"
    """Name of the listener that accepted the connection."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    is_token_authenticated: bool = False
    """Whether the client authenticated with a delegation token."""
    mechanism: str = ""
    """SASL mechanism; empty without SASL."""
    expires_at_ms: int | None = None
    """Wall clock time after which the client must re-authenticate (KIP-368); None: never."""


ANONYMOUS_SESSION: Final = Session()
"""The session of a connection to a plaintext listener."""
