"""Opens the listeners of a broker, and runs periodic work while they are open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.broker.net.listener import LOOPBACK, Accept, Listener
from konvene.broker.net.listener_security import ListenerSecurity
from konvene.configs.listeners import Listener as ListenerConfig

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.network import Network
    from konvene.broker.storage.log_maintenance import LogMaintenance

MAX_PAUSE_S = 10.0
"""Longest pause between two rounds of periodic work."""

_PLAINTEXT = "PLAINTEXT"


class CannotListen(Exception):
    """A listener cannot be opened; `error` is the reason."""

    def __init__(self, listener: ListenerConfig, error: OSError) -> None:
        super().__init__(f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}")
        self.listener = listener
        self.error = error


class SocketServer:
    """All listeners of a broker, and the periodic work: idle connections, retention, checkpoints, TLS files.

    `accept` creates each connection's protocol, by default a `Connection`."""

    def __init__(
        self,
        network: Network,
        catalogue: ClusterCatalogue,
        log_maintenance: LogMaintenance,
        security: ListenerSecurity,
        accept: Accept | None = None,
    ) -> None:
        self.listeners: dict[str, Listener] = {}
        """The open listeners, by name."""
        self._network = network
        self._catalogue = catalogue
        self._log_maintenance = log_maintenance
        self._security = security
        self._accept = accept or (lambda endpoint: endpoint.connection(network))
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return (
            f"<socket server: {list(self.listeners.values())}, {len(self._network.connections)} connections>"
        )

    @property
    def port(self) -> int:
        """Return the port of the first listener; 0 if none is open."""
        return next((listener.port for listener in self.listeners.values()), 0)

    @property
    def is_listening(self) -> bool:
        return bool(self.listeners) and all(one.is_listening for one in self.listeners.values())

    async def listen(self, host: str, port: int, name: str = _PLAINTEXT, protocol: str = _PLAINTEXT) -> None:
        """Open one listener, which advertises the address that it listens on.

        Raises OSError if the address is not available."""
        try:
            await self.listen_on([ListenerConfig(name, protocol, host, port, True, host, port)])
        except CannotListen as failure:
            raise failure.error from None

    async def listen_on(self, listeners: Iterable[ListenerConfig]) -> None:
        """Open the listeners, advertise their addresses, and start the log cleaner and the periodic work.

        Raises `CannotListen`, and `ConfigError` if the security settings of a listener are incomplete."""
        opening = tuple(listeners)
        # Clients may connect to the first address before all listeners are open.
        self._advertise(opening)
        made = [(listener, self._listener(listener)) for listener in opening]
        await self._security.start()
        for listener, opened in made:
            self.listeners[listener.name] = opened
            try:
                await opened.listen(listener.host, listener.port)
            except OSError as error:
                raise CannotListen(listener, error) from None
        self._advertise(opening)
        self._log_maintenance.cleaner.start()
        loop, flush = self._network.loop, self._log_maintenance.flush_periodically
        self._tasks = [loop.create_task(work()) for work in (self._work_periodically, flush)]

    def _listener(self, listener: ListenerConfig) -> Listener:
        endpoint = self._security.open(listener)
        return Listener(self._network, self._accept, endpoint, self._security.context_provider(listener))

    def _advertise(self, listeners: Iterable[ListenerConfig]) -> None:
        """Set the addresses that responses name; a port 0 is that of the open listener."""
        self._catalogue.advertised_by_listener = {
            listener.name: (
                listener.advertised_host or listener.host or LOOPBACK,
                listener.advertised_port or self._port(listener),
            )
            for listener in listeners
        }

    def _port(self, listener: ListenerConfig) -> int:
        opened = self.listeners.get(listener.name)
        return listener.port if opened is None or not opened.port else opened.port

    async def _work_periodically(self) -> None:
        """Close idle connections, drop unused sensors, apply retention, write checkpoints; at intervals."""
        network, config = self._network, self._network.settings.config
        idle_s = config["connections.max.idle.ms"] / 1000
        retention_s = config["log.retention.check.interval.ms"] / 1000
        next_retention = network.loop.time() + retention_s
        checkpoint_s = config["log.flush.offset.checkpoint.interval.ms"] / 1000
        next_checkpoint = network.loop.time() + checkpoint_s
        pause_s = min(retention_s, MAX_PAUSE_S)
        while True:
            await asyncio.sleep(min(idle_s, pause_s) if idle_s > 0 else pause_s)
            now_s = network.loop.time()
            if idle_s > 0:
                for connection in list(network.connections):
                    connection.close_if_idle(now_s - idle_s)
            network.client_quotas.remove_unused_sensors()
            network.connection_admission.rates.remove_unused_sensors()
            self._security.reload_changed_files()
            if now_s >= next_retention:
                next_retention = now_s + retention_s
                await self._log_maintenance.retain()
            if now_s >= next_checkpoint:
                next_checkpoint = now_s + checkpoint_s
                await self._log_maintenance.checkpoint()

    async def close(self) -> None:
        self._log_maintenance.cleaner.stop()
        for task in self._tasks:
            task.cancel()
        for listener in self.listeners.values():
            listener.close()
        await self._security.close()
