"""How tests call commands, as a shell would, without one; and what they call them against."""

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
    """Whatever listens somewhere: a scripted broker, or a real one."""

    @property
    def address(self) -> str: ...


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The output's lines, each as its words."""
        return [line.split() for line in self.out.splitlines()]


def call(broker: Reachable | None, *words: str, stdin: bytes | str | None = None) -> Said:
    """Run `konvene` with these words, against `broker` where there is one."""
    where = [] if broker is None else ["--bootstrap-server", broker.address]
    result = CliRunner().invoke(konvene, [*words, *where], input=stdin, prog_name="konvene")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


class Serving:
    """A broker that is there, and what tests need before they call a command."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, job: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(job)

    def create(self, topic: str, *records: int) -> None:
        """A topic with so many records in each of its partitions; their times are 1000, 2000, …"""

        async def job() -> None:
            async with Cluster(self.address) as cluster:
                forever = {"retention.ms": "-1"}
                await Admin(cluster).create_topic(topic, partitions=len(records), configs=forever)
                async with Producer(cluster) as producer:
                    for partition, count in enumerate(records):
                        for i in range(count):
                            await producer.send(topic, b"x", partition=partition, timestamp_ms=1000 * (i + 1))

        self.run(job())

    def commit(self, group: str, topic: str, **offsets: int) -> None:
        """`p0=5`: 5 is the group's offset in partition 0."""

        async def job() -> None:
            async with Cluster(self.address) as cluster:
                rows = {TopicPartition(topic, int(p[1:])): at for p, at in offsets.items()}
                await Admin(cluster).alter_offsets(group, rows)

        self.run(job())

    def committed(self, group: str) -> dict[str, int]:
        """The group's offsets, by `topic-partition`."""

        async def job() -> dict[str, int]:
            async with Cluster(self.address) as cluster:
                found = await Admin(cluster).committed_offsets(group)
                return {str(tp): at.offset for tp, at in found.items()}

        return dict(self.run(job()))

    def join(self, group: str, topics: Sequence[str], *instances: str | None) -> list[str]:
        """Members, one for each instance id (None for a dynamic one), that fall silent: their ids."""

        async def job() -> list[str]:
            async with Cluster(self.address) as cluster:
                members = [
                    Member(cluster, group, topics, settings=MemberSettings(group_instance_id=each))
                    for each in instances
                ]
                while any(m.rejoin for m in members) or len({m.generation for m in members}) > 1:
                    await asyncio.gather(*(m.join() for m in members))
                return [m.member_id for m in members]

        return list(self.run(job()))


@contextmanager
def serving(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Serving]:
    """A broker of ours with its data in this directory."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    up, down = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with running(directory, settings) as broker:
            ports.append(broker.catalogue.advertised[1])
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(20)
    try:
        yield Serving(f"127.0.0.1:{ports[0]}")
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join(20)
        loop.close()
