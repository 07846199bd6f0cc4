"""One listener: accepts connections at an address, over TLS if its protocol has it.

A connection to a TLS listener is created when its handshake is complete; a client that does not complete it
in time is disconnected. The context of new handshakes can be replaced while the listener is open: the first
one only selects the current one when the client's first message arrives.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.net.endpoint import PLAINTEXT_ENDPOINT, Endpoint

if TYPE_CHECKING:
    import ssl

    from konvene.broker.net.network import Network

LOOPBACK = "localhost"

HANDSHAKE_TIMEOUT_S = 30.0
"""Longest time for a handshake; `connections.max.idle.ms` may shorten it."""

SHUTDOWN_TIMEOUT_S = 5.0
"""Longest time to wait for the client's close_notify after the broker's."""

Accept = Callable[[Endpoint], asyncio.BaseProtocol]
"""Creates the asyncio protocol of a connection to a listener."""

ContextProvider = Callable[[], "ssl.SSLContext"]
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
            lambda: self._accept(self.endpoint),
            host,
            port,
            backlog=self._network.settings.config["socket.listen.backlog.size"],
            reuse_address=True,
            **self._tls_options(),
        )
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    def _tls_options(self) -> dict[str, Any]:
        """Return the arguments of `create_server` for TLS; none on a listener without it."""
        provider = self._tls_context
        if provider is None:
            return {}

        def use_current(tls: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
            current = provider()
            if tls.context is not current:
                tls.context = current

        context = provider()
        context.sni_callback = use_current
        idle_s = self._network.settings.config["connections.max.idle.ms"] / 1000
        return {
            "ssl": context,
            "ssl_handshake_timeout": min(HANDSHAKE_TIMEOUT_S, idle_s) if idle_s > 0 else HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }

    def close(self) -> None:
        """Stop to accept connections."""
        for server in self._servers:
            server.close()
