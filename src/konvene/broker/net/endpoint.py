"""A listener as its connections see it: its name, its protocol, and how it identifies clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.security.session import SecurityProtocol, Session

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.net.connection import Connection
    from konvene.broker.net.network import Network
    from konvene.security.sasl.authenticator import SaslListener

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
    sasl: SaslListener | None = None
    """Mechanisms of a listener with SASL."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Effective settings of the listener (`configs.listeners.listener_settings`)."""

    def connection(self, network: Network) -> Connection:
        """Return the asyncio protocol of a new connection to this listener."""
        if self.sasl is not None:
            from konvene.broker.net.sasl_connection import SaslConnection

            return SaslConnection(network, self, self.sasl)
        from konvene.broker.net.connection import Connection

        return Connection(network, self)

    def session_of(self, transport: asyncio.BaseTransport) -> Session:
        """Return the session of a new connection: of its certificate on an SSL listener, else anonymous."""
        principal = ANONYMOUS
        if self.security_protocol is SecurityProtocol.SSL:
            tls = transport.get_extra_info("ssl_object")
            principal = self.principal_of(None if tls is None else tls.getpeercert(binary_form=True))
        return Session(principal, self.name, self.security_protocol)


PLAINTEXT_ENDPOINT = Endpoint()
"""The endpoint of connections without a listener of their own, as in tests."""
