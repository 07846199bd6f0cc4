"""Members of consumer groups in virtual time: durations of rebalances, faults, and determinism."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from konvene.client import ClientError, Consumer, MemberSettings, TopicPartition
from konvene.testing import VirtualKonvene, virtual

pytestmark = pytest.mark.konvene(topics={"orders": 4})

HEARTBEAT_S, SESSION_S = 5.0, 45.0
"""Kafka's defaults."""


class Reader:
    """A consumer that polls forever, with its owned partitions."""

    def __init__(self, konvene: VirtualKonvene, name: str, *, static: bool = False) -> None:
        self.konvene = konvene
        self.name = name
        self.instance_id = name if static else None
        self.owned: set[TopicPartition] = set()
        self.happened: list[str] = []
        self.consumer: Consumer | None = None
        konvene.spawn(name, self.run())

    async def run(self) -> None:
        settings = MemberSettings(group_instance_id=self.instance_id, member_id=f"{self.name}-id")
        async with self.konvene.cluster(self.name) as cluster:
            self.consumer = Consumer(cluster, "readers", group_protocol="consumer", member=settings)
            self.consumer.subscribe(["orders"], on_assigned=self.assigned, on_revoked=self.revoked)
            while True:
                try:
                    await self.consumer.poll()
                except ClientError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0.1)

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.owned |= set(partitions)
        self.note("assigned", partitions)

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.owned -= set(partitions)
        self.note("revoked", partitions)

    def note(self, event: str, partitions: tuple[TopicPartition, ...]) -> None:
        numbers = ",".join(str(tp.partition) for tp in partitions) or "nothing"
        self.happened.append(f"{self.konvene.now:.3f} {self.name} {event} {numbers}")


async def until(konvene: VirtualKonvene, done: Callable[[], bool]) -> float:
    """Wait until `done` returns True; return the duration in seconds."""
    since = konvene.now
    await konvene.until(done)
    return konvene.now - since


def run_scenario(konvene: VirtualKonvene) -> list[str]:
    """Ann joins, bob joins, bob is killed and his session expires; return the rebalance callbacks."""
    events: list[str] = []

    async def main() -> None:
        ann = Reader(konvene, "ann")
        await konvene.until(lambda: len(ann.owned) == 4)
        await asyncio.sleep(60.0)
        bob = Reader(konvene, "bob")
        took = await until(konvene, lambda: len(bob.owned) == 2)
        assert len(ann.owned) == 2 and took < 2 * HEARTBEAT_S + 1
        await asyncio.sleep(60.0)
        konvene.kill_host("bob")
        took = await until(konvene, lambda: len(ann.owned) == 4)
        assert SESSION_S - HEARTBEAT_S - 1 < took < SESSION_S + HEARTBEAT_S + 1
        events.extend(ann.happened + bob.happened)

    konvene.run(main)
    return events


def test_a_join_waits_for_a_heartbeat_and_a_crash_for_the_session_timeout(
    virtual_konvene: VirtualKonvene,
) -> None:
    event_texts = [line.split(" ", 1)[1] for line in run_scenario(virtual_konvene)]
    assert event_texts == [
        "ann assigned 0,1,2,3", "ann revoked 2,3", "ann assigned nothing", "ann assigned 2,3",
        "bob assigned nothing", "bob assigned 2,3",
    ]  # fmt: skip


def test_runs_of_one_seed_are_identical_to_the_millisecond() -> None:
    runs = []
    for _ in range(2):
        with virtual(topics={"orders": 4}, seed=3) as konvene:
            runs.append(run_scenario(konvene))
    assert runs[0] == runs[1]


def test_lost_responses_only_delay_the_rebalance(virtual_konvene: VirtualKonvene) -> None:
    """Responses to the join, to the heartbeat with the new target, and to its acknowledgement are lost."""
    faults = virtual_konvene.faults

    async def main() -> None:
        joined = faults.lose_response("ConsumerGroupHeartbeat", client="ann")
        ann = Reader(virtual_konvene, "ann")
        await virtual_konvene.until(lambda: len(ann.owned) == 4)
        assert joined.applied
        bob = Reader(virtual_konvene, "bob")
        await virtual_konvene.until(lambda: any("bob assigned" in line for line in bob.happened))
        lost = [faults.lose_response("ConsumerGroupHeartbeat", client="ann")]
        await virtual_konvene.until(lambda: lost[0].applied)
        await virtual_konvene.until(lambda: len(ann.owned) == 2)
        lost += [faults.lose_response("ConsumerGroupHeartbeat", client=each) for each in ("ann", "bob")]
        await virtual_konvene.until(lambda: len(bob.owned) == 2 and all(f.applied for f in lost))
        await asyncio.sleep(2 * SESSION_S)
        assert sorted(ann.owned | bob.owned) == [TopicPartition("orders", p) for p in range(4)]
        assert (len(ann.owned), len(bob.owned)) == (2, 2)

    virtual_konvene.run(main)
    assert [each.generation for each in virtual_konvene.rebalances("readers")] == [2, 3]


def test_broker_restarts_move_no_partition(
    virtual_konvene: VirtualKonvene,
) -> None:
    async def main() -> None:
        ann, bob = Reader(virtual_konvene, "ann", static=True), Reader(virtual_konvene, "bob")
        await virtual_konvene.until(lambda: len(ann.owned) == len(bob.owned) == 2)
        events = len(ann.happened + bob.happened)
        for _ in range(5):
            await asyncio.sleep(7.0)
            await virtual_konvene.restart(kill=True)
        await asyncio.sleep(2 * SESSION_S)
        assert len(ann.happened + bob.happened) == events

    virtual_konvene.run(main)
    assert [each.generation for each in virtual_konvene.rebalances("readers")] == [2, 3]


def test_a_crashed_static_member_rejoins_after_its_session_expired(
    virtual_konvene: VirtualKonvene,
) -> None:
    """Its previous incarnation did not leave; until its session expires the new one retries the join."""

    async def main() -> None:
        ann = Reader(virtual_konvene, "ann", static=True)
        await virtual_konvene.until(lambda: len(ann.owned) == 4)
        await asyncio.sleep(20.0)
        virtual_konvene.kill_host("ann")
        again = Reader(virtual_konvene, "ann", static=True)
        again.name = "again"
        took = await until(virtual_konvene, lambda: len(again.owned) == 4)
        assert took < SESSION_S + 2

    virtual_konvene.run(main)
