"""The broker of an end-to-end run: a host that is started, stopped, killed and restarted on its disk.

It starts as `konvene serve` does, with a simulated environment (clock, entropy). None of its parts is
replaced. It is observed from outside: `on_release` is called before a coordinator releases replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from konvene.broker.broker import Broker
from konvene.broker.net.listener import Accept
from konvene.broker.net.socket_server import SocketServer
from konvene.broker.node_services import NodeServices
from konvene.broker.shares.share_partitions import SharePartitions
from konvene.broker.shares.state_coordinators import ShareCoordinators
from konvene.broker.storage.disk_threads import DiskThreads
from konvene.configs import BrokerConfig
from konvene.configs.listeners import Listener
from konvene.log.directory import Identity, LogDirectory
from konvene.log.disk.memory import PowerCut
from konvene.log.errors import LogError
from konvene.runtime.coordinator import Coordinator
from konvene.runtime.environment import Environment
from konvene.sim.machine.disk import SimDisk
from konvene.sim.machine.loop import Host, SimLoop

__all__ = ["BROKER", "DATA", "PORT", "SASL_PORT", "BrokerHost"]

BROKER, PORT, DATA = "broker", 9092, "/data"
SASL_PORT = 9093
"""Port of the listener whose clients authenticate with SASL, in runs with an authorizer."""
EPOCH_MS = 1_760_000_000_000
STOPS_WITHIN_S = 60.0

OnRelease = Callable[[Coordinator, Any], None]

LISTENERS = (Listener("PLAINTEXT", "PLAINTEXT", BROKER, PORT, True, BROKER, PORT),)
SASL_LISTENER = Listener("CLIENTS", "SASL_PLAINTEXT", BROKER, SASL_PORT, True, BROKER, SASL_PORT)


class SimThreads(DiskThreads):
    """A stand-in for the broker's pool of disk threads, without threads: disk work runs in a later step of
    the simulated loop."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(0)
        self._loop = loop

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(None, work)


class BrokerHost:
    """The machine on which one broker process after another runs, each on the disk that the last one left.

    `broker` is None while none runs, `lives` counts the starts."""

    def __init__(self, loop: SimLoop, config: BrokerConfig, disk: SimDisk, seed: int) -> None:
        self.loop = loop
        self.config = config
        self.disk = disk
        self.seed = seed
        self.skew_ms = 0
        self.lives = 0
        self.host: Host | None = None
        self.broker: Broker | None = None
        self.server: SocketServer | None = None
        self.ready = False
        self.served = asyncio.Event()
        """Set when the broker is ready for the first time."""
        self.disk_failed = False
        """Whether this life's disk ever failed, so that its errors are expected."""
        self.on_release: OnRelease = lambda coordinator, held: None
        self.make_share_partitions: Callable[[NodeServices, ShareCoordinators], SharePartitions] = (
            SharePartitions
        )
        """Makes the share partitions of each life's broker."""
        self.listeners: tuple[Listener, ...] = LISTENERS
        self.accept_of: Callable[[Broker], Accept | None] = lambda broker: None
        """Returns what creates the connections of a broker; None for the broker's own."""
        self.on_ready: Callable[[], None] = lambda: None
        self.on_end: Callable[[str], None] = lambda why: None
        self.watched_coordinators: dict[Coordinator, None] = {}
        self._stop: asyncio.Event | None = None
        disk.clock = self.wall_ms

    def __repr__(self) -> str:
        state = "ready" if self.ready else "up" if self.is_up else "down"
        return f"<broker host, life {self.lives}: {state}>"

    @property
    def is_up(self) -> bool:
        return self.host is not None and self.host.alive

    @property
    def disk_is_offline(self) -> bool:
        """Whether the broker runs, but has taken its log directory offline after a disk error."""
        return self.broker is not None and self.broker.directory.health.failure is not None

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.loop.now * 1000) + self.skew_ms

    # --- its life ---

    def start(self) -> None:
        """Start a broker on the current disk, unless one runs already."""
        if self.is_up:
            return
        self.lives += 1
        self.ready, self.disk_failed = False, False
        self.disk.die_at = None
        self.host = self.loop.host(BROKER)
        self.loop.spawn(BROKER, self._live(self.disk, self.host), name=f"{BROKER}/life-{self.lives}")

    async def _live(self, disk: SimDisk, host: Host) -> None:
        why = "stopped"
        try:
            await self._serve(disk)
        except LogError as error:
            self.disk_failed = True
            why = f"could not go on: {type(error).__name__}"
        except PowerCut:
            return
        if host.alive:
            self._ended(why, disk.after_kill())

    async def _serve(self, disk: SimDisk) -> None:
        directory = LogDirectory.open(disk, DATA, Identity("simulated-cluster", 1, "simulated-directory"))
        chance = Random(f"{self.seed} {self.lives}")
        broker = Broker(
            self.config, directory, self.loop, Environment.seeded(self.wall_ms, chance),
            SimThreads(self.loop), self.make_share_partitions,
        )  # fmt: skip
        self.broker, self.server = broker, broker.socket_server(self.accept_of(broker))
        self._stop = asyncio.Event()
        try:
            await broker.start()
            await self.server.listen_on(self.listeners)
            self.ready = True
            self.served.set()
            self.on_ready()
            await self._stop.wait()
            self.ready = False
        finally:
            await self.server.close()
            await broker.stop()

    def _ended(self, why: str, disk: SimDisk, *, silently: bool = False) -> None:
        self.loop.kill(BROKER, silently=silently)
        self.broker = self.server = self._stop = None
        self.ready = False
        self.disk = disk
        self.watched_coordinators.clear()
        self.on_end(why)

    def stop(self) -> None:
        """Request a clean shutdown and return at once; `on_end` is called when it is complete."""
        if self._stop is not None and self.host is not None:
            self.loop.run_on(self.host, self._stop.set)

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        if self.is_up:
            self._ended("killed", self.disk.after_kill())

    def cut_power(self) -> None:
        """Cut the power of the machine: unsynced writes may be lost, and no connection is closed."""
        if self.is_up:
            self._ended("lost power", self.disk.cut_power(), silently=True)

    def die_soon(self, operations: int, *, power: bool) -> None:
        """Make the broker die at a disk operation, after `operations` further ones: killed, or with a power
        cut if `power`."""
        disk = self.disk
        disk.dies = lambda: self._ended(
            "lost power while it wrote" if power else "killed while it wrote",
            disk.cut_power() if power else disk.after_kill(), silently=power,
        )  # fmt: skip
        disk.die_at = disk.calls + operations

    # --- what can be seen of it ---

    def coordinators(self) -> list[Coordinator]:
        """Return all coordinators of the running broker: those of groups, those of share groups, and that of
        the catalogue's log. The list is empty while no broker runs."""
        if self.broker is None:
            return []
        return [
            *self.broker.groups.all(),
            *self.broker.share_coordinators.all(),
            self.broker.catalogue.coordinator,
        ]

    def watch(self) -> None:
        """Observe the coordinators that exist now: from now on `on_release` is called before one of them
        sends replies."""
        for coordinator in self.coordinators():
            if coordinator not in self.watched_coordinators:
                self.watched_coordinators[coordinator] = None
                self._watch(coordinator)

    def _watch(self, coordinator: Coordinator) -> None:
        release = coordinator._release

        def watched(held: Any) -> None:
            self.on_release(coordinator, held)
            release(held)

        setattr(coordinator, "_release", watched)  # noqa: B010
