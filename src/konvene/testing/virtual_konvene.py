"""`VirtualKonvene`: a broker and code that uses `konvene.client`, in one loop whose time jumps.

The broker is the whole one, on a host of its own in the simulator's network, and takes the same faults. What
`run` is given runs on another host. Nothing waits: an hour of sleep is over when there is nothing else to do.
With the same seed two runs are alike.

Methods are coroutines where time passes. `Fault.wait` is for threads; here it is `until`. Whatever opens real
sockets, other Kafka clients among them, does not work here; use the fixture `konvene` for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from konvene.client import Admin, ClientSettings, Cluster, Producer, TopicPartition
from konvene.client.consumer.consumer import Consumed
from konvene.client.consumer.fetch import read_partition
from konvene.groups.classic.group import State
from konvene.log.disk.files import Disk
from konvene.log.disk.memory import MemoryDisk
from konvene.runtime.environment import Environment
from konvene.sim.machine.loop import SimLoop
from konvene.testing import captured_logs
from konvene.testing.faults import Faults
from konvene.testing.group import GroupView, RebalanceView, history, look
from konvene.testing.node import Node
from konvene.testing.request_header import OWN_CLIENT

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

T = TypeVar("T")

BROKER, TEST, PORT = "broker", "test", 9092
EPOCH_MS = 1_760_000_000_000
LOOK_EVERY_S = 0.01
FOREVER = str((1 << 63) - 1)

SETTINGS = {"log.message.timestamp.after.max.ms": FOREVER}
"""Clients whose clock is the machine's are far from the virtual one; their records are taken all the same."""


@contextlib.contextmanager
def virtual(
    settings: Mapping[str, Any] | None = None, topics: Mapping[str, int] | None = None, seed: int = 0
) -> Iterator[VirtualKonvene]:
    """A broker in virtual time, which starts with the first `run`."""
    made = VirtualKonvene(settings, topics, seed)
    try:
        yield made
    finally:
        made.close()


class VirtualKonvene:
    """A broker and its clients on one loop in virtual time."""

    bootstrap = f"{BROKER}:{PORT}"

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        topics: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = SETTINGS | {name: str(value) for name, value in (settings or {}).items()}
        self.loop = SimLoop(Random(seed))
        self.faults = Faults(_Place(self))
        self.log: list[str] = []
        self._topics = dict(topics or {})
        self._seed = seed
        self._lives = 0
        self._disk: Disk = MemoryDisk()
        self._node: Node | None = None
        self._past: list[RebalanceView] = []

    def __repr__(self) -> str:
        state = "runs" if self._node is not None else "is down"
        return f"<virtual konvene {state}, {self.now:.3f} s>"

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return self.loop.now - self.loop.began

    def clock_ms(self) -> int:
        """The virtual wall clock, as `konvene.client.Producer` takes one."""
        return EPOCH_MS + int(self.now * 1000)

    # --- running ---

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function beside the broker and return its result.

        Raises `konvene.sim.machine.loop.Deadlock` if everything waits forever."""
        captured_logs.listen(threading.get_ident(), self.log)
        try:
            return self.loop.run_until_complete(self.loop.spawn(TEST, self._run(main)))  # type: ignore[no-any-return]
        finally:
            captured_logs.forget(threading.get_ident())

    async def _run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._lives:
            await self.start()
            for name, partitions in self._topics.items():
                await self.create_topic(name, partitions)
        return await main()

    def spawn(self, host: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on a host of its own, which can be killed: see `kill_host`."""
        if host in (BROKER, TEST):
            raise ValueError(f"the host {host} is taken; give yours another name")
        return self.loop.spawn(host, work)

    def kill_host(self, host: str) -> None:
        """Kill everything that runs on a host, as `kill -9` does; its task never ends."""
        self.loop.kill(host)

    def close(self) -> None:
        """Close the loop and everything on it."""
        self.loop.close()
        self._node = None

    # --- the broker's life ---

    async def start(self) -> None:
        """Start the broker, or start it again with the same data."""
        if self._node is not None:
            return
        self._lives += 1
        doors = Environment.seeded(self.clock_ms, Random(f"{self._seed} {self._lives}"))
        self._node = await self.loop.spawn(BROKER, self._begin(doors))

    async def _begin(self, doors: Environment) -> Node:
        node = Node(self._disk, "/konvene", self.settings, self.faults, doors, BROKER)
        await node.start(PORT)
        return node

    async def stop(self) -> None:
        """Stop the broker properly."""
        if self._node is not None:
            self._past = self.rebalances()
            node, self._node = self._node, None
            await self.loop.spawn(BROKER, node.stop())
            self.loop.kill(BROKER)

    def kill(self, *, power_cut: bool = False) -> None:
        """Kill the broker, or with `power_cut` the machine: unsynced bytes are lost."""
        if self._node is not None:
            self._past = self.rebalances()
            assert isinstance(self._disk, MemoryDisk)
            self._disk = self._disk.crash() if power_cut else self._disk.copy()
            self._node = None
            self.loop.kill(BROKER, silently=power_cut)

    async def restart(self, *, kill: bool = False) -> None:
        """Stop or kill the broker, and start it again with its data."""
        if kill:
            self.kill()
        else:
            await self.stop()
        await self.start()

    def inside(self, act: Callable[[Broker], T]) -> T:
        """Run a function with the broker."""
        if self._node is None:
            raise RuntimeError("the broker is down; start() starts it again")
        return self.loop.host(BROKER).context.copy().run(act, self._node.broker)

    # --- topics and records ---

    def cluster(self, client: str = "konvene") -> Cluster:
        """Return a client: `async with virtual_konvene.cluster("ann") as cluster`."""
        return Cluster(self.bootstrap, ClientSettings(client_id=client))

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, Any] | None = None
    ) -> None:
        told = {key: str(value) for key, value in (configs or {}).items()}
        async with self.cluster(OWN_CLIENT) as cluster:
            await Admin(cluster).create_topic(name, partitions=partitions, configs=told)

    async def produce(
        self, topic: str, values: Iterable[str | bytes], *, partition: int | None = None
    ) -> None:
        """Write records in order; without a partition round-robin."""
        async with (
            self.cluster(OWN_CLIENT) as cluster,
            Producer(cluster, clock_ms=self.clock_ms) as producer,
        ):
            for value in values:
                data = value.encode() if isinstance(value, str) else value
                await (await producer.send(topic, data, partition=partition))

    async def records(self, topic: str) -> list[Consumed]:
        """Return all records of a topic, by partition and offset."""
        found = []
        async with self.cluster(OWN_CLIENT) as cluster:
            for each in (await cluster.topic(topic)).partitions:
                async for r in read_partition(cluster, TopicPartition(topic, each.partition)):
                    found.append(
                        Consumed(topic, each.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    )
        return found

    # --- groups ---

    def group(self, name: str) -> GroupView:
        """Return the current state of a group."""
        return self.inside(lambda broker: look(broker, name))

    def rebalances(self, group: str | None = None) -> list[RebalanceView]:
        """Return the rebalances of a group (or all), oldest first; also while the broker is stopped."""
        if self._node is None:
            return [each for each in self._past if group in (None, each.group)]
        return self.inside(lambda broker: history(broker, group))

    async def wait_stable(self, group: str, members: int | None = None, within_s: float = 300.0) -> GroupView:
        """Wait until the group is Stable with so many members, in virtual seconds."""

        def is_so() -> bool:
            found = self.group(group)
            return found.state == State.STABLE and members in (None, len(found.members))

        what = f"group {group} Stable with {'any' if members is None else members} members"
        await self.until(is_so, within_s, what)
        return self.group(group)

    async def until(self, is_so: Callable[[], object], within_s: float = 300.0, what: str = "so") -> None:
        """Wait for a condition. Raises TimeoutError after so many virtual seconds."""
        deadline = self.now + within_s
        while self._node is None or not is_so():
            if self.now >= deadline:
                groups = "\n".join(str(each) for each in self.rebalances()[-5:])
                raise TimeoutError(
                    f"not {what} within {within_s} s; the last rebalances:\n{groups or 'none'}"
                )
            await asyncio.sleep(LOOK_EVERY_S)


class _Place:
    """Where faults find the broker; what takes time is begun."""

    def __init__(self, konvene: VirtualKonvene) -> None:
        self._konvene = konvene

    def __repr__(self) -> str:
        return f"<place of {self._konvene!r}>"

    def inside(self, act: Callable[[Broker], T]) -> T:
        """Run a function with the broker."""
        return self._konvene.inside(act)

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill the broker, and start it again with its data."""
        if kill:
            self._konvene.kill()
        self._konvene.loop.spawn("operator", self._konvene.restart())


__all__ = ["BROKER", "TEST", "VirtualKonvene", "virtual"]
