"""Members of consumer groups in virtual time: how long things take, and that it is always the same."""

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
    """A consumer that polls for ever, and what it holds."""

    def __init__(self, konvene: VirtualKonvene, name: str, *, static: bool = False) -> None:
        self.konvene = konvene
        self.name = name
        self.instance_id = name if static else None
        self.holds: set[TopicPartition] = set()
        self.happened: list[str] = []
        self.consumer: Consumer | None = None
        konvene.spawn(name, self.live())

    async def live(self) -> None:
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
        self.holds |= set(partitions)
        self.note("takes", partitions)

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.holds -= set(partitions)
        self.note("gives up", partitions)

    def note(self, word: str, partitions: tuple[TopicPartition, ...]) -> None:
        numbers = ",".join(str(tp.partition) for tp in partitions) or "nothing"
        self.happened.append(f"{self.konvene.now:.3f} {self.name} {word} {numbers}")


async def until(konvene: VirtualKonvene, done: Callable[[], bool]) -> float:
    """How long it took, in seconds."""
    since = konvene.now
    await konvene.until(done)
    return konvene.now - since


def story(konvene: VirtualKonvene) -> list[str]:
    """Ann reads alone, bob joins, bob is killed and missed."""
    told: list[str] = []

    async def main() -> None:
        ann = Reader(konvene, "ann")
        await konvene.until(lambda: len(ann.holds) == 4)
        await asyncio.sleep(60.0)
        bob = Reader(konvene, "bob")
        took = await until(konvene, lambda: len(bob.holds) == 2)
        assert len(ann.holds) == 2 and took < 2 * HEARTBEAT_S + 1
        await asyncio.sleep(60.0)
        konvene.kill_host("bob")
        took = await until(konvene, lambda: len(ann.holds) == 4)
        assert SESSION_S - HEARTBEAT_S - 1 < took < SESSION_S + HEARTBEAT_S + 1
        told.extend(ann.happened + bob.happened)

    konvene.run(main)
    return told


def test_a_join_takes_a_heartbeat_of_another_and_a_death_takes_a_session(
    virtual_konvene: VirtualKonvene,
) -> None:
    words = [line.split(" ", 1)[1] for line in story(virtual_konvene)]
    assert words == [
        "ann takes 0,1,2,3", "ann gives up 2,3", "ann takes nothing", "ann takes 2,3", "bob takes nothing",
        "bob takes 2,3",
    ]  # fmt: skip


def test_the_same_story_comes_out_to_the_millisecond_each_time() -> None:
    stories = []
    for _ in range(2):
        with virtual(topics={"orders": 4}, seed=3) as konvene:
            stories.append(story(konvene))
    assert stories[0] == stories[1]


def test_answers_that_are_lost_cost_time_and_nothing_else(virtual_konvene: VirtualKonvene) -> None:
    """Of the join, of the heartbeat that brings the new target, and of the one that acknowledges it."""
    faults = virtual_konvene.faults

    async def main() -> None:
        joined = faults.lose_response("ConsumerGroupHeartbeat", client="ann")
        ann = Reader(virtual_konvene, "ann")
        await virtual_konvene.until(lambda: len(ann.holds) == 4)
        assert joined.applied
        bob = Reader(virtual_konvene, "bob")
        await virtual_konvene.until(lambda: any("bob takes" in line for line in bob.happened))
        lost = [faults.lose_response("ConsumerGroupHeartbeat", client="ann")]
        await virtual_konvene.until(lambda: lost[0].applied)
        await virtual_konvene.until(lambda: len(ann.holds) == 2)
        lost += [faults.lose_response("ConsumerGroupHeartbeat", client=each) for each in ("ann", "bob")]
        await virtual_konvene.until(lambda: len(bob.holds) == 2 and all(f.applied for f in lost))
        await asyncio.sleep(2 * SESSION_S)
        assert sorted(ann.holds | bob.holds) == [TopicPartition("orders", p) for p in range(4)]
        assert (len(ann.holds), len(bob.holds)) == (2, 2)

    virtual_konvene.run(main)
    assert [each.generation for each in virtual_konvene.rebalances("readers")] == [2, 2, 3, 3]


def test_a_broker_that_dies_and_comes_back_is_found_again_and_nobody_moves(
    virtual_konvene: VirtualKonvene,
) -> None:
    async def main() -> None:
        ann, bob = Reader(virtual_konvene, "ann", static=True), Reader(virtual_konvene, "bob")
        await virtual_konvene.until(lambda: len(ann.holds) == len(bob.holds) == 2)
        told = len(ann.happened + bob.happened)
        for _ in range(5):
            await asyncio.sleep(7.0)
            await virtual_konvene.restart(kill=True)
        await asyncio.sleep(2 * SESSION_S)
        assert len(ann.happened + bob.happened) == told

    virtual_konvene.run(main)
    assert [each.generation for each in virtual_konvene.rebalances("readers")] == [2, 2, 3, 3]


def test_a_static_member_whose_host_dies_waits_for_itself_to_be_forgotten(
    virtual_konvene: VirtualKonvene,
) -> None:
    """Its former self has not left, and is released when its session is over: until then it asks again."""

    async def main() -> None:
        ann = Reader(virtual_konvene, "ann", static=True)
        await virtual_konvene.until(lambda: len(ann.holds) == 4)
        await asyncio.sleep(20.0)
        virtual_konvene.kill_host("ann")
        again = Reader(virtual_konvene, "ann", static=True)
        again.name = "again"
        took = await until(virtual_konvene, lambda: len(again.holds) == 4)
        assert took < SESSION_S + 2

    virtual_konvene.run(main)
