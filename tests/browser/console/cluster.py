"""A cluster with groups of all types, whose members are real clients, and a console of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.cli.commands import RunningBroker, running_broker
from tests.cli.office import StreamsEnvironment, has_all_tasks, word_count_topology
from tests.console.running import DEADLINE_S, RunningConsole, State, is_live, running_console

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Producer
from konvene.client.share.consumer import ShareConsumer
from konvene.client.streams.tasks import Topology

__all__ = ["LiveCluster", "live_cluster", "prepare"]

T = TypeVar("T")

LONG_MS, SHORT_MS = 600_000, 5_000
"""Session timeouts of members that stay, and of those that tests kill."""
SETTINGS = {
    "group.min.session.timeout.ms": "1", "group.max.session.timeout.ms": str(LONG_MS),
    "group.consumer.min.session.timeout.ms": "1", "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.session.timeout.ms": str(SHORT_MS), "group.consumer.heartbeat.interval.ms": "300",
    "group.share.max.session.timeout.ms": str(LONG_MS), "group.share.session.timeout.ms": str(LONG_MS),
    "group.streams.max.session.timeout.ms": str(LONG_MS), "group.streams.session.timeout.ms": str(LONG_MS),
    "group.streams.min.heartbeat.interval.ms": "20", "group.streams.heartbeat.interval.ms": "20",
    "group.streams.assignment.interval.ms": "0", "group.streams.initial.rebalance.delay.ms": "0",
}  # fmt: skip


class Background:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(DEADLINE_S)

    def close(self) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


async def _cancel_others() -> None:
    """Cancel what is left in the loop, such as heartbeats of members."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Broker(RunningBroker):
    """Helpers that work in a thread whose event loop is Playwright's."""

    def __init__(self, address: str, background: Background) -> None:
        super().__init__(address)
        self._background = background

    def run(self, job: Coroutine[Any, Any, Any]) -> Any:
        return self._background.run(job)


class LiveCluster:
    """A broker, its console, and members that join and die when the test wants it."""

    def __init__(self, broker: RunningBroker, console: RunningConsole) -> None:
        self.background = Background()
        self.broker = _Broker(broker.address, self.background)
        self.console = console
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self._open: list[tuple[ShareConsumer, Cluster]] = []

    @property
    def url(self) -> str:
        return self.console.url.rstrip("/")

    # --- members ---

    def join(self, name: str, topic: str, *args: str) -> None:
        """Start `konvene consume` in a process of its own, with this client id."""
        command = [sys.executable, "-m", "konvene", "consume", topic, "--client-id", name, *args]
        command += ["--bootstrap-server", self.broker.address]
        self.members[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def join_classic(self, name: str, topic: str, group: str, *args: str) -> None:
        session = f"session.timeout.ms={SHORT_MS}", "heartbeat.interval.ms=300"
        properties = [each for pair in session for each in ("--consumer-property", pair)]
        self.join(name, topic, "--group", group, "--from-beginning", *properties, *args)

    def join_consumer(self, name: str, topic: str, group: str, *args: str) -> None:
        protocol = "--consumer-property", "group.protocol=consumer"
        self.join(name, topic, "--group", group, "--from-beginning", *protocol, *args)

    def kill(self, name: str) -> None:
        """Kill a member, which cannot leave its group (`kill -9`)."""
        process = self.members.pop(name)
        process.kill()
        process.wait(DEADLINE_S)

    def leave(self, name: str) -> None:
        process = self.members.pop(name)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)

    def hold_records(self, group: str, topic: str, name: str) -> None:
        """Let a share consumer receive records of `topic` and keep them without acknowledging."""

        async def job() -> None:
            cluster = Cluster(self.broker.address, ClientSettings(client_id=name))
            consumer = ShareConsumer(cluster, group, explicit=True)
            self._open.append((consumer, cluster))
            consumer.subscribe([topic])
            records: list[Any] = []
            while not records:
                records = await consumer.poll(200)

        self.background.run(job())

    def run_streams(self, app: str, lines: str, *names: str, topology: Topology | None = None) -> None:
        """Run members of a word count, or of another topology of four tasks, until the tasks are assigned;
        they stay in the group."""

        def is_assigned(*members: Any) -> bool:
            return has_all_tasks(*members) and all(m.assignment.active for m in members)

        run = partial(
            StreamsEnvironment(self.broker).run, app, topology or word_count_topology(app, lines), *names
        )
        with ThreadPoolExecutor() as threads:
            threads.submit(run, until=is_assigned).result(DEADLINE_S)

    # --- data ---

    def produce(self, topic: str, *records: tuple[bytes | None, bytes | None], headers: Any = ()) -> None:
        async def job() -> None:
            async with Cluster(self.broker.address) as cluster, Producer(cluster) as producer:
                for key, value in records:
                    await producer.send(topic, value, key=key, partition=0, headers=headers)

        self.broker.run(job())

    def configure(self, group: str, settings: dict[str, str]) -> None:
        """Change settings of a group."""

        async def job() -> None:
            async with Cluster(self.broker.address) as cluster:
                await Admin(cluster).alter_configs(GROUP_CONFIG, group, settings)

        self.broker.run(job())

    def until(self, condition: Callable[[State], object], view: str = "groups", **arguments: str) -> State:
        """Wait until the console's view fulfils the condition; return its state."""
        with self.console.view(view, **arguments) as stream:
            return stream.until(lambda state: is_live(state) and condition(state))

    def until_members(self, group: str, count: int) -> State:
        """Wait until the group has so many members, which have all that they are assigned."""

        def settled(state: State) -> bool:
            rows = state["members"].values()
            states = "Stable", "Steady"
            return (
                len(rows) == count and state["facts"]["state"] in states
                and all(row["reached"] is not False for row in rows)
                and not any(row["open"] for row in state["rebalances"].values())
            )  # fmt: skip

        return self.until(settled, "group", group=group)

    def close(self) -> None:
        for process in self.members.values():
            process.kill()
        for process in self.members.values():
            process.wait(DEADLINE_S)
        for consumer, cluster in self._open:
            with contextlib.suppress(TimeoutError):
                self.background.run(consumer.close(5_000))
            self.background.run(cluster.close())
        self.background.close()


@contextmanager
def live_cluster(directory: Path, **options: Any) -> Iterator[LiveCluster]:
    """Run a broker and its console; `options` as in `ServerOptions`."""
    with (
        running_broker(directory, SETTINGS) as broker,
        running_console(broker.address, **options) as console,
    ):
        cluster = LiveCluster(broker, console)
        try:
            yield cluster
        finally:
            cluster.close()


def prepare(cluster: LiveCluster) -> None:
    """Create topics with records, and a group of each type with members and some rebalances."""
    cluster.broker.create("orders", 120, 80, 95, 60, 110, 70)
    cluster.broker.create("payments", 40, 40)
    cluster.broker.create("lines", 8, 8)
    cluster.broker.commit("reports", "orders", p0=20, p1=5)
    for name in ("billing-1", "billing-2", "billing-3"):
        cluster.join_consumer(name, "orders", "billing")
    for name in ("mailer-1", "mailer-2"):
        cluster.join_classic(name, "payments", "mailer")
    cluster.run_streams("word-count", "lines", "counter-1", "counter-2")
    cluster.until_members("billing", 3)
    cluster.join_consumer("billing-4", "orders", "billing")
    cluster.configure("packers", {"share.auto.offset.reset": "earliest"})
    cluster.hold_records("packers", "payments", "packer-1")
    cluster.until_members("billing", 4)
    cluster.until_members("mailer", 2)
    cluster.leave("billing-2")
    cluster.until_members("billing", 3)
