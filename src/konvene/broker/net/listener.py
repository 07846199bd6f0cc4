"""One listener: accepts connections at an address, over TLS if its protocol has it."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.net.endpoint import PLAINTEXT_ENDPOINT, Endpoint
from konvene.broker.net.tls_handshake import HalfOpen, TlsHandshake

if TYPE_CHECKING:
    from konvene.broker.net.network import Network

LOOPBACK = "localhost"

Accept = Callable[[Endpoint], asyncio.BaseProtocol]
"""Creates the asyncio protocol of a connection to a listener."""

ContextProvider = Callable[[], ssl.SSLContext]
"""Returns the TLS context of the next connection."""


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
        self.half_open = HalfOpen(network, endpoint.name)
        self.port = 0
        self._network = network
        self._accept = accept
        self._tls_context = tls_context
        self._servers: list[asyncio.Server] = []

    def __repr__(self) -> str:
        return f"<listener {self.endpoint.name} on port {self.port}>"

    @property
    def is_listening(self) -> bool:
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
        server = await self._network.loop.create_server(
            self._protocol,
            host,
            port,
            backlog=self._network.settings.config["socket.listen.backlog.size"],
            reuse_address=True,
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    def _protocol(self) -> asyncio.BaseProtocol:
        if self._tls_context is None:
            return self._accept(self.endpoint)
        return TlsHandshake(self.half_open, self._tls_context(), lambda: self._accept(self.endpoint))

    def close(self) -> None:
        """Stop to accept connections, and abort incomplete handshakes."""
        for server in self._servers:
            server.close()
        self.half_open.abort_all()
