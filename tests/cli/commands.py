"""Call `konvene` commands in-process, and run a broker for them in a background thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from click.testing import CliRunner
from tests.broker.running import running

from konvene.cli.app import konvene
from konvene.client.admin.admin import Admin
from konvene.client.consumer.classic_member import Member, MemberSettings
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.producer.producer import Producer


class Reachable(Protocol):
    """A broker with an address, scripted or real."""

    @property
    def address(self) -> str: ...


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """Lines of standard output, each split at white space."""
        return [line.split() for line in self.out.splitlines()]


def call(broker: Reachable | None, *args: str, stdin: bytes | str | None = None) -> CommandResult:
    """Run `konvene` with these arguments; with `broker`, against its address."""
    bootstrap = [] if broker is None else ["--bootstrap-server", broker.address]
    result = CliRunner().invoke(konvene, [*args, *bootstrap], input=stdin, prog_name="konvene")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, result.stderr)


class RunningBroker:
    """A running broker, with helpers that create topics, offsets and members in it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, job: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(job)

    def create(self, topic: str, *records: int) -> None:
        """Create `topic` with so many records per partition; their timestamps are 1000, 2000, … ms."""

        async def job() -> None:
            async with Cluster(self.address) as cluster:
                config = {"retention.ms": "-1"}
                await Admin(cluster).create_topic(topic, partitions=len(records), configs=config)
                async with Producer(cluster) as producer:
                    for partition, count in enumerate(records):
                        for i in range(count):
                            await producer.send(topic, b"x", partition=partition, timestamp_ms=1000 * (i + 1))

        self.run(job())

    def commit(self, group: str, topic: str, **offsets: int) -> None:
        """Commit offsets for the group; `p0=5` commits 5 in partition 0."""

        async def job() -> None:
            async with Cluster(self.address) as cluster:
                rows = {TopicPartition(topic, int(p[1:])): at for p, at in offsets.items()}
                await Admin(cluster).alter_offsets(group, rows)

        self.run(job())

    def committed(self, group: str) -> dict[str, int]:
        """Return the group's committed offsets by `topic-partition`."""

        async def job() -> dict[str, int]:
            async with Cluster(self.address) as cluster:
                found = await Admin(cluster).committed_offsets(group)
                return {str(tp): at.offset for tp, at in found.items()}

        return dict(self.run(job()))

    def join(self, group: str, topics: Sequence[str], *instances: str | None) -> list[str]:
        """Join one classic member per instance id (None: a dynamic member) that never heartbeats; return
        the member ids.
        """

        async def job() -> list[str]:
            async with Cluster(self.address) as cluster:
                members = [
                    Member(cluster, group, topics, settings=MemberSettings(group_instance_id=instance_id))
                    for instance_id in instances
                ]
                while any(m.rejoin for m in members) or len({m.generation for m in members}) > 1:
                    await asyncio.gather(*(m.join() for m in members))
                return [m.member_id for m in members]

        return list(self.run(job()))


@contextmanager
def running_broker(directory: Path, settings: dict[str, str] | None = None) -> Iterator[RunningBroker]:
    """Run a broker of this package on `directory` in a background thread."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    started, stopping = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with running(directory, settings) as broker:
            ports.append(broker.catalogue.advertised[1])
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield RunningBroker(f"127.0.0.1:{ports[0]}")
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(20)
        loop.close()
