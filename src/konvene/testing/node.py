"""One run of a broker on an event loop, with a fault proxy on every connection.

`konvene` runs nodes on the loop of its own thread, `virtual_konvene` on a loop in virtual time. A node is
started once; a restart creates another node on the disk that the previous one left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from konvene.broker.broker import Broker
from konvene.broker.net.endpoint import Endpoint
from konvene.broker.storage.disk_threads import DiskThreads, resolve_future
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.log.directory import META_NAME, Identity, LogDirectory
from konvene.log.disk.files import Disk
from konvene.log.disk.memory import MemoryDisk
from konvene.runtime.environment import SYSTEM, Environment
from konvene.testing.fault_proxy import FaultProxy
from konvene.testing.journal_faults import FaultyJournal

if TYPE_CHECKING:
    from konvene.testing.faults import Faults

HOST = "127.0.0.1"

DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Settings that differ from Kafka's defaults: no initial rebalance delay, short sessions and record locks
allowed, and fewer partitions of the coordinators' topics to open."""


class SynchronousDisk(DiskThreads):
    """A pool of disk threads without threads: work on an in-memory disk is done at once, by the caller."""

    def __init__(self) -> None:
        super().__init__(0)

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        try:
            loop.call_soon(resolve_future, done, work(), None)
        except BaseException as error:
            loop.call_soon(resolve_future, done, None, error)
        return done


def settings_text(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings with their values as text in Kafka's form, such as `true` for True."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def broker_config(settings: Mapping[str, str]) -> BrokerConfig:
    """Return the broker config with these settings, and `DEFAULTS` for those not given. Raises
    `ConfigError`."""
    return BrokerConfig.load(overrides=list((DEFAULTS | dict(settings)).items()))[0]


class Node:
    """One run of a broker with its listener, from its start to its stop or crash."""

    def __init__(
        self, disk: Disk, path: str, settings: Mapping[str, str], faults: Faults,
        environment: Environment = SYSTEM, host: str = HOST,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._path = path
        self._host = host
        self._faults = faults
        config = broker_config(settings)
        new = not disk.exists(f"{path}/{META_NAME}")
        cluster, directory_id = (str(Uuid(environment.fresh_uuid().bytes)) if new else "" for _ in range(2))
        directory = LogDirectory.open(disk, path, Identity(cluster, config["node.id"], directory_id))
        threads = SynchronousDisk() if isinstance(disk, MemoryDisk) else None
        self.broker = Broker(config, directory, asyncio.get_running_loop(), environment, threads)
        self.broker.groups.wrap_journal = lambda journal: FaultyJournal(journal, faults)
        self._proxies: dict[FaultProxy, None] = {}
        self._is_killed = False
        self._server = self.broker.socket_server(self._accept)

    def __repr__(self) -> str:
        return f"<node at {self._host}:{self.port}>"

    @property
    def port(self) -> int:
        return self._server.port

    def _accept(self, endpoint: Endpoint) -> FaultProxy:
        return FaultProxy(self.broker, endpoint, self._faults, self._proxies, lambda: self._is_killed)

    async def start(self, port: int = 0, protocol: str = "PLAINTEXT") -> None:
        """Load the coordinators, then listen on `port`, or on a free port if it is 0, by this protocol."""
        await self.broker.start()
        await self.broker.groups.make_ready()
        await self.broker.groups.loaded()
        await self._server.listen(self._host, port, protocol, protocol)

    async def stop(self) -> None:
        """Shut the broker down: complete pending work and close everything."""
        await self._server.close()
        await self.broker.stop()
        for proxy in list(self._proxies):
            proxy.client.abort()
        await asyncio.sleep(0)

    async def die(self, *, power_cut: bool = False) -> Disk:
        """End as a killed process, which flushes nothing and aborts its connections; return the disk as it
        remains.

        With `power_cut` an in-memory disk loses unsynced bytes. The loop runs on for a moment: a connection
        that was accepted just before is aborted too, since what it writes is not on the returned disk."""
        self._is_killed = True
        left = self._disk
        if isinstance(left, MemoryDisk):
            left = left.crash() if power_cut else left.copy()
        await self._server.close()
        for proxy in list(self._proxies):
            proxy.client.abort()
        self.broker.directory.close(clean=False)
        self.broker.disk.shutdown(wait=False)
        await asyncio.sleep(0)
        return left
