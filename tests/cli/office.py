"""Streams applications that tests run against a broker until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.cli.commands import CommandResult, RunningBroker, call

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology

SETTINGS = {
    "group.streams.min.heartbeat.interval.ms": "20", "group.streams.heartbeat.interval.ms": "20",
    "group.streams.assignment.interval.ms": "0", "group.streams.initial.rebalance.delay.ms": "0",
}  # fmt: skip
TIMEOUT_S = 30


def word_count_topology(app: str, lines: str) -> Topology:
    """A word count: two subtopologies connected by a repartition topic."""
    repartition = f"{app}-words-repartition"
    compacted = InternalTopic(f"{app}-counts-changelog", configs={"cleanup.policy": "compact"})
    return Topology(
        (
            Subtopology("0", (lines,), (repartition,)),
            Subtopology("1", (), (), (compacted,), (InternalTopic(repartition, 2),)),
        )
    )


class StreamsEnvironment:
    """A broker and the streams applications that tests run against it."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.ids: dict[str, str] = {}

    def groups(self, *args: str) -> CommandResult:
        return call(self.broker, "groups", *args)

    def run(
        self, app: str, topology: Topology, *names: str, until: Callable[..., bool], leave: bool = False,
        **settings: object,
    ) -> None:  # fmt: skip
        """Run one member per name until `until(*members)` is true; then close them, or let them leave the
        group.
        """

        async def job() -> None:
            clusters = [Cluster(self.broker.address, ClientSettings(client_id=name)) for name in names]
            members = [
                StreamsMember(
                    cluster, app, topology,
                    settings=StreamsMemberSettings(
                        **({"member_id": f"{name}-1", "process_id": f"p-{name}"} | settings)  # type: ignore[arg-type]
                    ),
                )
                for name, cluster in zip(names, clusters, strict=True)
            ]  # fmt: skip
            async with asyncio.timeout(TIMEOUT_S):
                while not until(*members):
                    for member in members:
                        await member.ensure()
                    await asyncio.sleep(0.005)
            for member in members:
                if leave and member.state is not MemberState.LEFT:
                    await member.leave()
                elif member._heartbeats is not None:
                    member._heartbeats.cancel()
            for cluster in clusters:
                await cluster.close()

        asyncio.run(job())

    def create_finished_app(self, app: str) -> Topology:
        """Create an application that has committed some offsets and whose members have left; return its
        topology.
        """
        lines = f"{app}-lines"
        topology = word_count_topology(app, lines)
        self.broker.create(lines, 5, 3)
        self.run(app, topology, "ann", until=has_all_tasks, leave=True)
        self.broker.commit(app, lines, p0=2, p1=3)
        self.broker.commit(app, f"{app}-words-repartition", p0=0)
        return topology


def has_all_tasks(*members: StreamsMember) -> bool:
    return len({task for m in members for task in m.assignment.active}) == 4
