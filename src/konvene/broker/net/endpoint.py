"""A listener as its connections see it: its name, its protocol, and how it identifies clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.security.session import SecurityProtocol, Session

if TYPE_CHECKING:
    import asyncio

__all__ = ["PLAINTEXT_ENDPOINT", "Endpoint"]


def _anonymous(_certificate: bytes | None) -> KafkaPrincipal:
    return ANONYMOUS


@dataclass(slots=True, eq=False)
class Endpoint:
    """A listener's name and security protocol, and what authenticates its clients.

    The attributes are replaced when configs change; open connections keep their sessions."""

    name: str = "PLAINTEXT"
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal_of: Callable[[bytes | None], KafkaPrincipal] = _anonymous
    """Returns the principal of a client's certificate (DER; None: the client has none)."""

    def session_of(self, transport: asyncio.BaseTransport) -> Session:
        """Return the session of a new connection: of its certificate on an SSL listener, else anonymous."""
        principal = ANONYMOUS
        if self.security_protocol is SecurityProtocol.SSL:
            tls = transport.get_extra_info("ssl_object")
            principal = self.principal_of(None if tls is None else tls.getpeercert(binary_form=True))
        return Session(principal, self.name, self.security_protocol)


PLAINTEXT_ENDPOINT = Endpoint()
"""The endpoint of connections without a listener of their own, as in tests."""
