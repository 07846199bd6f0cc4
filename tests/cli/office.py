"""Applications that tests run against a broker of ours, for as long as they are asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.cli.commands import Said, Serving, call

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
LONG_S = 30


def words(app: str, lines: str) -> Topology:
    """Counts words: two subtopologies, and a topic of its own between them."""
    repartition = f"{app}-words-repartition"
    compacted = InternalTopic(f"{app}-counts-changelog", configs={"cleanup.policy": "compact"})
    return Topology(
        (
            Subtopology("0", (lines,), (repartition,)),
            Subtopology("1", (), (), (compacted,), (InternalTopic(repartition, 2),)),
        )
    )


class Office:
    """A broker, and applications that run for as long as they are asked to."""

    def __init__(self, broker: Serving) -> None:
        self.broker = broker
        self.ids: dict[str, str] = {}

    def groups(self, *said: str) -> Said:
        return call(self.broker, "groups", *said)

    def run(
        self, app: str, topology: Topology, *names: str, until: Callable[..., bool], leave: bool = False,
        **settings: object,
    ) -> None:  # fmt: skip
        """Members that work until something is so of them, and then fall silent, or leave."""

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
            async with asyncio.timeout(LONG_S):
                while not until(*members):
                    for each in members:
                        await each.ensure()
                    await asyncio.sleep(0.005)
            for each in members:
                if leave and each.state is not MemberState.LEFT:
                    await each.leave()
                elif each._heartbeats is not None:
                    each._heartbeats.cancel()
            for cluster in clusters:
                await cluster.close()

        asyncio.run(job())

    def ended(self, app: str) -> Topology:
        """An application that has read some of its topic, and whose members have left."""
        lines = f"{app}-lines"
        topology = words(app, lines)
        self.broker.create(lines, 5, 3)
        self.run(app, topology, "ann", until=has_all, leave=True)
        self.broker.commit(app, lines, p0=2, p1=3)
        self.broker.commit(app, f"{app}-words-repartition", p0=0)
        return topology


def has_all(*members: StreamsMember) -> bool:
    return len({task for m in members for task in m.assignment.active}) == 4
