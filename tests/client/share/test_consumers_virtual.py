"""Share consumers in virtual time: what a broker that dies costs them, and that it is always the same."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from konvene.client import (
    AcknowledgeType,
    Admin,
    ClientError,
    KafkaError,
    ShareConsumer,
    TopicPartition,
)
from konvene.client.admin.admin import GROUP_CONFIG
from konvene.errors import Errors
from konvene.testing import VirtualKonvene, virtual

pytestmark = pytest.mark.konvene(topics={"orders": 4})

HEARTBEAT_S, SESSION_S, LOCK_S = 5.0, 45.0, 30.0
"""Kafka's defaults."""


class Worker:
    """A share consumer that polls for ever, accepts what it gets, and remembers what that was."""

    def __init__(self, konvene: VirtualKonvene, name: str) -> None:
        self.konvene = konvene
        self.name = name
        self.got: list[tuple[float, str, int]] = []
        """When, what, and the how manieth time."""
        konvene.spawn(name, self.live())

    async def live(self) -> None:
        member_id = f"{self.name}-id"
        async with (
            self.konvene.cluster(self.name) as cluster,
            ShareConsumer(cluster, "workers", member_id=member_id) as consumer,
        ):
            consumer.subscribe(["orders"])
            while True:
                try:
                    for record in await consumer.poll():
                        value = (record.value or b"").decode()
                        self.got.append((round(self.konvene.now, 3), value, record.delivery_count))
                except ClientError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0.1)


async def begin(konvene: VirtualKonvene) -> None:
    async with konvene.cluster("admin") as cluster:
        await Admin(cluster).alter_configs(GROUP_CONFIG, "workers", {"share.auto.offset.reset": "earliest"})


def story(konvene: VirtualKonvene) -> list[tuple[float, str, int]]:
    """Ann and bob share work; bob dies with records in his hands; ann gets them when nobody waits for bob."""
    told: list[tuple[float, str, int]] = []

    async def main() -> None:
        await begin(konvene)
        ann, bob = Worker(konvene, "ann"), Worker(konvene, "bob")
        for i in range(40):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            await asyncio.sleep(0.3)
        konvene.kill_host("bob")
        await konvene.until(lambda: {v for _, v, _ in ann.got + bob.got} == set(map(str, range(40))))
        await asyncio.sleep(LOCK_S + 1)
        seen = len(ann.got)
        await asyncio.sleep(SESSION_S + LOCK_S)
        assert len(ann.got) == seen, "what was accepted came again"
        assert ann.got and bob.got
        again = [v for _, v, count in ann.got if count > 1]
        assert set(again) <= {v for _, v, _ in bob.got}
        told.extend(sorted(ann.got + bob.got))

    konvene.run(main)
    return told


def test_what_somebody_had_when_he_died_is_given_to_another(virtual_konvene: VirtualKonvene) -> None:
    told = story(virtual_konvene)
    assert {v for _, v, _ in told} == set(map(str, range(40)))


def test_the_same_story_comes_out_to_the_millisecond_each_time() -> None:
    stories = []
    for _ in range(2):
        with virtual(topics={"orders": 4}, seed=3) as konvene:
            stories.append(story(konvene))
    assert stories[0] == stories[1]


def test_a_broker_that_dies_and_comes_back_delivers_each_record_until_it_is_accepted(
    virtual_konvene: VirtualKonvene,
) -> None:
    konvene = virtual_konvene

    async def main() -> list[int | None]:
        await begin(konvene)
        workers = [Worker(konvene, "ann"), Worker(konvene, "bob")]
        await asyncio.sleep(2 * HEARTBEAT_S)
        for i in range(40):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            if i % 8 == 7:
                await konvene.restart(kill=True)
        everything = set(map(str, range(40)))
        await konvene.until(lambda: {v for w in workers for _, v, _ in w.got} == everything)
        await asyncio.sleep(2 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    assert konvene.run(main) == [0, 0, 0, 0]


def test_answers_that_are_lost_lose_no_record(virtual_konvene: VirtualKonvene) -> None:
    """Of the fetch that brings records, of an acknowledgement, of a heartbeat."""
    konvene = virtual_konvene

    async def main() -> list[int | None]:
        await begin(konvene)
        ann = Worker(konvene, "ann")
        for i, api in enumerate(("ShareFetch", "ShareGroupHeartbeat", "ShareFetch", "ShareFetch")):
            fault = konvene.faults.lose_response(api, client="ann")
            await konvene.produce("orders", [str(i)], partition=i)
            await konvene.until(lambda f=fault: f.applied)  # type: ignore[misc]
        await konvene.until(lambda: {v for _, v, _ in ann.got} == set("0123"))
        await asyncio.sleep(2 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    assert konvene.run(main) == [0, 0, 0, 0]


def test_explicit_releases_come_to_the_other_and_no_lock_has_to_run_out(
    virtual_konvene: VirtualKonvene,
) -> None:
    konvene = virtual_konvene

    async def main() -> None:
        await begin(konvene)
        async with konvene.cluster("giver") as here, konvene.cluster("taker") as there:
            giver = ShareConsumer(here, "workers", explicit=True)
            taker = ShareConsumer(there, "workers")
            for each in (giver, taker):
                each.subscribe(["orders"])
            got = []
            await konvene.produce("orders", ["x"], partition=0)
            while not got:
                got = await giver.poll(1000)
            while not taker.assignment:
                await taker.poll(100)
            began = konvene.now
            giver.acknowledge(got[0], AcknowledgeType.RELEASE)
            await giver.commit()
            again = []
            while not again:
                again = await taker.poll(1000)
            assert again[0].delivery_count == 2
            assert konvene.now - began < 1
            await giver.close()
            await taker.close()

    konvene.run(main)


def test_who_waits_for_an_answer_waits_though_there_is_news_in_the_group(
    virtual_konvene: VirtualKonvene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new partition is for the next poll; until the answer is there, or the time over, nothing is done."""
    konvene, turns = virtual_konvene, 0
    ask = ShareConsumer._ask

    def counted(self: ShareConsumer, *, fetching: bool) -> None:
        nonlocal turns
        turns += 1
        assert turns < 500, "it does not wait, it spins"
        ask(self, fetching=fetching)

    async def main() -> None:
        await begin(konvene)
        async with konvene.cluster("ann") as cluster, konvene.cluster("admin") as other:
            ann = ShareConsumer(cluster, "workers", explicit=True)
            ann.subscribe(["orders"])
            got = []
            await konvene.produce("orders", ["x"], partition=0)
            while not got:
                got = await ann.poll(1000)
            assert ann.member is not None
            ann.acknowledge(got[0])
            held = konvene.faults.hold("ShareAcknowledge", client="ann")
            await Admin(other).create_partitions("orders", 5)
            monkeypatch.setattr(ShareConsumer, "_ask", counted)
            said = await ann.commit(timeout_ms=20_000)
            assert ann.member.rejoin
            (error,) = said.values()
            assert isinstance(error, KafkaError) and error.code == Errors.REQUEST_TIMED_OUT
            held.release()
            assert await ann.commit() == {}
            await ann.close()

    konvene.run(main)


class Book:
    """What brokers said they took, of all members, and what went wrong with that."""

    def __init__(self) -> None:
        self.done: set[tuple[int, int]] = set()
        self.wrong: list[str] = []


class Clerk:
    """A share consumer that decides by the dice, works now and then, and writes down what was taken."""

    def __init__(self, konvene: VirtualKonvene, name: str, book: Book, dice: Random) -> None:
        self.konvene, self.name, self.book, self.dice = konvene, name, book, dice
        self.on_the_way: dict[tuple[int, int], AcknowledgeType] = {}
        konvene.spawn(name, self.live())

    async def live(self) -> None:
        async with (
            self.konvene.cluster(self.name) as cluster,
            ShareConsumer(
                cluster, "workers", explicit=True, member_id=f"{self.name}-id", on_acknowledged=self.hear
            ) as consumer,
        ):
            consumer.subscribe(["orders"])
            while True:
                try:
                    await self.work(consumer)
                except ClientError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0.1)

    async def work(self, consumer: ShareConsumer) -> None:
        for record in await consumer.poll():
            place = record.partition, record.offset
            if place in self.book.done:
                self.book.wrong.append(f"{place} came to {self.name} when it was done")
            weights = (85, 5, 5, 5) if record.delivery_count < 4 else (1, 0, 0, 0)
            kinds = (AcknowledgeType(number) for number in range(1, 5))
            (kind,) = self.dice.choices(tuple(kinds), weights)
            self.on_the_way[place] = kind
            consumer.acknowledge(record, kind)
        if self.dice.random() < 0.3:
            await consumer.commit(5_000)
        if self.dice.random() < 0.1:
            await asyncio.sleep(self.dice.random() * 3)

    async def hear(self, tp: TopicPartition, offsets: tuple[int, ...], error: ClientError | None) -> None:
        for place in ((tp.partition, offset) for offset in offsets):
            kind = self.on_the_way.pop(place)
            if error is None and kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                if place in self.book.done:
                    self.book.wrong.append(f"{place} was done twice, at last by {self.name}")
                self.book.done.add(place)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_what_was_done_never_comes_again_and_all_gets_done(seed: int) -> None:
    """Answers and requests are lost, the broker is killed, members die and others come."""
    dice, book, count = Random(seed), Book(), 60

    async def main() -> list[int | None]:
        await begin(konvene)
        names = ["ann", "bob", "cat"]
        for name in names:
            Clerk(konvene, name, book, dice)
        for i in range(count):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            await asyncio.sleep(dice.random() * 0.3)
            fate = dice.random()
            if fate < 0.15:
                lose = dice.choice([konvene.faults.lose_response, konvene.faults.lose_request])
                apis = ("ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat", "Metadata")
                lose(dice.choice(apis), client=dice.choice(names))
            elif fate < 0.18:
                await konvene.restart(kill=True)
            elif fate < 0.20:
                konvene.kill_host(names.pop(0))
                names.append(f"new{i}")
                Clerk(konvene, names[-1], book, dice)
        konvene.faults.clear()
        await asyncio.sleep(4 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    with virtual({"group.share.delivery.count.limit": 10}, {"orders": 4}, seed) as konvene:
        assert konvene.run(main) == [0, 0, 0, 0]
    assert book.wrong == []
    assert len(book.done) > count / 2, "too few answers came for this to mean much"
