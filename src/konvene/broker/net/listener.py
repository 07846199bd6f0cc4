"""One listener: accepts connections at an address, over TLS if its protocol has it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.net.endpoint import PLAINTEXT_ENDPOINT, Endpoint

if TYPE_CHECKING:
    from konvene.broker.net.network import Network
    from konvene.broker.net.tls_acceptor import ContextProvider, TlsAcceptor

LOOPBACK = "localhost"

Accept = Callable[[Endpoint], asyncio.BaseProtocol]
"""Creates the asyncio protocol of a connection to a listener."""


class Listener:
    """A listener of the broker. `endpoint` describes it to the connections that it accepts from now on."""

    def __init__(
        self,
        network: Network,
        accept: Accept,
        endpoint: Endpoint = PLAINTEXT_ENDPOINT,
        tls_context: ContextProvider | None = None,
    ) -> None:
        """`tls_context` is required if the listener's protocol has TLS."""
        if endpoint.security_protocol.has_tls and tls_context is None:
            raise ValueError(f"listener {endpoint.name} has no TLS context")
        self.endpoint = endpoint
        self.port = 0
        self._network = network
        self._accept = accept
        self._servers: list[asyncio.Server] = []
        self.tls_acceptor: TlsAcceptor | None = None
        """Accepts connections if the listener's protocol has TLS."""
        if tls_context is not None:
            from konvene.broker.net.tls_acceptor import TlsAcceptor

            self.tls_acceptor = TlsAcceptor(network, accept, lambda: self.endpoint, tls_context)

    def __repr__(self) -> str:
        return f"<listener {self.endpoint.name} on port {self.port}>"

    @property
    def is_listening(self) -> bool:
        if self.tls_acceptor is not None:
            return self.tls_acceptor.is_serving
        return bool(self._servers) and all(server.is_serving() for server in self._servers)

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept connections. Raises OSError if the address is not available."""
        if host == LOOPBACK:
            await self._listen_at("127.0.0.1", port)
            try:
                await self._listen_at("::1", self.port)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        else:
            await self._listen_at(host or None, port)

    async def _listen_at(self, host: str | None, port: int) -> None:
        if self.tls_acceptor is not None:
            self.port = await self.tls_acceptor.listen(host, port)
            return
        server = await self._network.loop.create_server(
            lambda: self._accept(self.endpoint),
            host,
            port,
            backlog=self._network.settings.config["socket.listen.backlog.size"],
            reuse_address=True,
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop accepting connections."""
        if self.tls_acceptor is not None:
            self.tls_acceptor.close()
        for server in self._servers:
            server.close()
