"""Members of streams groups in virtual time: session expiry, and determinism."""

from __future__ import annotations

import asyncio

import pytest

from konvene.client import InternalTopic, StreamsMember, StreamsMemberSettings, Subtopology, Topology
from konvene.testing import VirtualKonvene, virtual

SESSION_S = 45.0
"""Kafka's default."""

TOPOLOGY = Topology(
    (
        Subtopology("0", ("orders",), ("app-by-repartition",)),
        Subtopology("1", repartition_source_topics=(InternalTopic("app-by-repartition", 4),)),
    )
)


class Instance:
    """An instance of the application that runs forever and records its assignments."""

    def __init__(self, konvene: VirtualKonvene, name: str) -> None:
        self.konvene = konvene
        self.name = name
        self.member: StreamsMember | None = None
        self.happened: list[str] = []
        konvene.spawn(name, self.run())

    @property
    def count(self) -> int:
        return len(self.member.assignment.active) if self.member is not None else 0

    async def run(self) -> None:
        settings = StreamsMemberSettings(member_id=f"{self.name}-id", process_id=self.name)
        async with self.konvene.cluster(self.name) as cluster:
            self.member = StreamsMember(cluster, "app", TOPOLOGY, settings=settings)
            while True:
                await self.member.ensure()
                self.happened.append(f"{self.konvene.now:.3f} {self.name} {self.member.assignment}")
                await self.member.idle(60_000)


def run_scenario(seed: int) -> list[str]:
    """Ann joins, bob joins, bob is killed and his session expires; return their assignments."""
    assignments: list[str] = []
    with virtual(topics={"orders": 4}, seed=seed) as konvene:

        async def main() -> None:
            ann = Instance(konvene, "ann")
            await konvene.until(lambda: ann.count == 8)
            await asyncio.sleep(60)
            bob = Instance(konvene, "bob")
            await konvene.until(lambda: ann.count == bob.count == 4)
            view = konvene.group("app").member("bob-id")
            assert view.tasks is not None
            assert len(view.tasks.active) == 4
            await asyncio.sleep(60)
            since = konvene.now
            konvene.kill_host("bob")
            await konvene.until(lambda: ann.count == 8)
            assert SESSION_S - 6 < konvene.now - since < SESSION_S + 6
            await konvene.wait_stable("app", 1)
            assignments.extend(ann.happened + bob.happened)

        konvene.run(main)
    return assignments


@pytest.mark.parametrize("seed", [1, 2])
def test_tasks_of_a_killed_member_move_after_its_session_deterministically(seed: int) -> None:
    assert run_scenario(seed) == run_scenario(seed)
