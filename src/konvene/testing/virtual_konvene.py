"""`VirtualKonvene`: a broker and code that uses `konvene.client`, on one event loop in virtual time.

The complete broker runs on a host of its own in the simulator's network and takes the same faults as
`Konvene`. The coroutine given to `run` runs on another host. When nothing is ready to run, the clock advances
to the next timer, so an hour of sleep takes no time. Two runs with the same seed are identical.

Methods in which time passes are coroutines. Use `until` instead of `Fault.wait`, which blocks a thread. Code
that opens real sockets, such as other Kafka clients, does not work here; use the fixture `konvene` for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from konvene.client import Admin, ClientSettings, Cluster, Producer, TopicPartition
from konvene.client.admin.groups import CommittedOffset
from konvene.client.consumer.consumer import Consumed
from konvene.client.consumer.fetch import read_partition
from konvene.client.producer.producer import Produced
from konvene.groups.classic.group import State
from konvene.log.disk.files import Disk
from konvene.log.disk.memory import MemoryDisk
from konvene.plurals import counted
from konvene.runtime.environment import Environment
from konvene.sim.machine.loop import SimLoop
from konvene.testing import captured_logs
from konvene.testing.faults import Faults
from konvene.testing.group import GroupView, RebalanceView, group_view, rebalance_history
from konvene.testing.node import Node, settings_text
from konvene.testing.records import Writable, check_values, send_all
from konvene.testing.request_header import OWN_CLIENT

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

T = TypeVar("T")

BROKER, TEST, PORT = "broker", "test", 9092
EPOCH_MS = 1_760_000_000_000
POLL_INTERVAL_S = 0.01
FOREVER = str((1 << 63) - 1)

SETTINGS = {"log.message.timestamp.after.max.ms": FOREVER}
"""Accept records with timestamps of the machine's clock, which is far from the virtual clock."""


@contextlib.contextmanager
def virtual(
    settings: Mapping[str, object] | None = None, topics: Mapping[str, int] | None = None, seed: int = 0
) -> Iterator[VirtualKonvene]:
    """Yield a broker in virtual time, which starts with the first `run`.

    `settings` has Kafka's broker configs, `topics` the partition counts of topics to create by name."""
    konvene = VirtualKonvene(settings, topics, seed)
    try:
        yield konvene
    finally:
        konvene.close()


class VirtualKonvene:
    """A broker and its clients on one loop in virtual time."""

    bootstrap = f"{BROKER}:{PORT}"

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = SETTINGS | settings_text(settings or {})
        self.loop = SimLoop(Random(seed))
        self.faults = Faults(_VirtualBrokerControl(self))
        self.log: list[str] = []
        self._topics = dict(topics or {})
        self._seed = seed
        self._starts = 0
        self._disk: Disk = MemoryDisk()
        self._node: Node | None = None
        self._rebalances_before_stop: list[RebalanceView] = []

    def __repr__(self) -> str:
        state = "runs" if self._node is not None else "is down"
        return f"<virtual konvene {state}, {self.now:.3f} s>"

    @property
    def now(self) -> float:
        """Seconds of virtual time since the start."""
        return self.loop.now - self.loop.began

    def clock_ms(self) -> int:
        """Return the virtual wall-clock time in ms; pass this method to `konvene.client.Producer`."""
        return EPOCH_MS + int(self.now * 1000)

    # --- running ---

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function beside the broker and return its result.

        Raises `konvene.sim.machine.loop.Deadlock` if every task waits without a timer."""
        captured_logs.start_capture(threading.get_ident(), self.log)
        try:
            return self.loop.run_until_complete(self.loop.spawn(TEST, self._run(main)))
        finally:
            captured_logs.stop_capture(threading.get_ident())

    async def _run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._starts:
            await self.start()
            for name, partitions in self._topics.items():
                await self.create_topic(name, partitions)
        return await main()

    def spawn(self, host: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on a host of its own, which `kill_host` can kill."""
        if host in (BROKER, TEST):
            raise ValueError(f"the host name {host} is reserved; use another one")
        return self.loop.spawn(host, work)

    def kill_host(self, host: str) -> None:
        """Kill everything that runs on a host, as `kill -9` does; its task never ends."""
        self.loop.kill(host)

    def close(self) -> None:
        """Close the loop and everything on it."""
        self.loop.close()
        self._node = None

    # --- starting and stopping the broker ---

    async def start(self) -> None:
        """Start the broker unless it runs; after a stop or kill, with the same data."""
        if self._node is not None:
            return
        self._starts += 1
        environment = Environment.seeded(self.clock_ms, Random(f"{self._seed} {self._starts}"))
        self._node = await self.loop.spawn(BROKER, self._start_node(environment))

    async def _start_node(self, environment: Environment) -> Node:
        node = Node(self._disk, "/konvene", self.settings, self.faults, environment, BROKER)
        await node.start(PORT)
        return node

    async def stop(self) -> None:
        """Shut the broker down: it answers waiting requests and flushes everything to disk."""
        if self._node is not None:
            self._rebalances_before_stop = self.rebalances()
            node, self._node = self._node, None
            await self.loop.spawn(BROKER, node.stop())
            self.loop.kill(BROKER)

    def kill(self, *, power_cut: bool = False) -> None:
        """Kill the broker as `kill -9` does; with `power_cut`, unsynced bytes are lost too."""
        if self._node is not None:
            self._rebalances_before_stop = self.rebalances()
            assert isinstance(self._disk, MemoryDisk)
            self._disk = self._disk.crash() if power_cut else self._disk.copy()
            self._node = None
            self.loop.kill(BROKER, silently=power_cut)

    async def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, or kill it if `kill`, and start it again with its data."""
        if kill:
            self.kill()
        else:
            await self.stop()
        await self.start()

    def with_broker(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the `Broker` object, and return the result."""
        if self._node is None:
            raise RuntimeError("the broker is stopped; start() starts it again")
        return self.loop.host(BROKER).context.copy().run(function, self._node.broker)

    # --- topics and records ---

    def cluster(self, client: str = "konvene") -> Cluster:
        """Return a new, unconnected client with the client id `client`, for `async with
        virtual_konvene.cluster("ann") as cluster`."""
        return Cluster(self.bootstrap, ClientSettings(client_id=client))

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        texts = settings_text(configs or {})
        async with self.cluster(OWN_CLIENT) as cluster:
            await Admin(cluster).create_topic(name, partitions=partitions, configs=texts)

    async def produce(
        self, topic: str, values: Iterable[Writable], *, key: str | bytes | None = None,
        partition: int | None = None,
    ) -> list[Produced]:  # fmt: skip
        """Write a record for each value, as `Konvene.produce` does, by default with virtual timestamps."""
        check_values(values)
        async with (
            self.cluster(OWN_CLIENT) as cluster,
            Producer(cluster, clock_ms=self.clock_ms) as producer,
        ):
            return await send_all(producer, topic, values, key=key, partition=partition)

    async def records(self, topic: str) -> list[Consumed]:
        """Return all records of a topic, ordered by partition and offset."""
        found = []
        async with self.cluster(OWN_CLIENT) as cluster:
            for each in (await cluster.topic(topic)).partitions:
                async for r in read_partition(cluster, TopicPartition(topic, each.partition)):
                    found.append(
                        Consumed(topic, each.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    )
        return found

    # --- groups ---

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]) -> None:
        """Commit offsets, by (topic, partition), for a group without members; create the group if it does not
        exist. Raises `konvene.client.KafkaError`, such as UNKNOWN_MEMBER_ID if the group has members."""
        async with self.cluster(OWN_CLIENT) as cluster:
            rows = {TopicPartition(*where): at for where, at in offsets.items()}
            await Admin(cluster).alter_offsets(group, rows)

    def group(self, name: str) -> GroupView:
        """Return the current state of a group."""
        return self.with_broker(lambda broker: group_view(broker, name))

    def rebalances(self, group: str | None = None) -> list[RebalanceView]:
        """Return the rebalances of a group, or of all groups, oldest first.

        Includes those before a restart; works while the broker is stopped, too."""
        if self._node is None:
            return [each for each in self._rebalances_before_stop if group in (None, each.group)]
        return self.with_broker(lambda broker: rebalance_history(broker, group))

    async def wait_stable(self, group: str, members: int | None = None, within_s: float = 300.0) -> GroupView:
        """Wait until the group is Stable, with `members` members if given, and return it.

        Raises TimeoutError after `within_s` seconds of virtual time."""

        def is_stable() -> bool:
            view = self.group(group)
            return view.state == State.STABLE and members in (None, len(view.members))

        wanted = "any members" if members is None else counted(members, "member")
        await self.until(is_stable, within_s, f"group {group} Stable with {wanted}")
        return self.group(group)

    async def until(
        self, condition: Callable[[], object], within_s: float = 300.0, description: str = "as expected"
    ) -> None:
        """Wait until `condition` is true. Raises TimeoutError after `within_s` seconds of virtual time."""
        deadline = self.now + within_s
        while self._node is None or not condition():
            if self.now >= deadline:
                groups = "\n".join(str(each) for each in self.rebalances()[-5:])
                raise TimeoutError(
                    f"not {description} within {within_s} s; the last rebalances:\n{groups or 'none'}"
                )
            await asyncio.sleep(POLL_INTERVAL_S)


class _VirtualBrokerControl:
    """A `BrokerControl` for a broker in virtual time; its `restart` returns before the broker has
    restarted."""

    def __init__(self, konvene: VirtualKonvene) -> None:
        self._konvene = konvene

    def __repr__(self) -> str:
        return f"<control of {self._konvene!r}>"

    def with_broker(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the `Broker` object, and return the result."""
        return self._konvene.with_broker(function)

    def restart(self, *, kill: bool = False) -> None:
        """Kill the broker at once if `kill`, and schedule its restart with its data, which otherwise stops it
        first."""
        if kill:
            self._konvene.kill()
        self._konvene.loop.spawn("operator", self._konvene.restart())

    @property
    def running(self) -> bool:
        return True

    def allow(self, acl: str) -> None:
        """Raise ValueError: a broker in virtual time identifies no users."""
        raise ValueError(f"a broker in virtual time has no ACLs: {acl}")

    def revoke(self, acl: str) -> None:
        """Raise ValueError, as `allow`."""
        self.allow(acl)


__all__ = ["BROKER", "TEST", "VirtualKonvene", "virtual"]
