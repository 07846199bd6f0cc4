"""Share consumers in virtual time: crashes of brokers and members, lost messages, and determinism."""

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
    """A share consumer that polls for ever, implicitly accepts records, and keeps a list of them."""

    def __init__(self, konvene: VirtualKonvene, name: str) -> None:
        self.konvene = konvene
        self.name = name
        self.received: list[tuple[float, str, int]] = []
        """Time, value and delivery count of each record."""
        konvene.spawn(name, self.run())

    async def run(self) -> None:
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
                        self.received.append((round(self.konvene.now, 3), value, record.delivery_count))
                except ClientError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0.1)


async def configure_group(konvene: VirtualKonvene) -> None:
    async with konvene.cluster("admin") as cluster:
        await Admin(cluster).alter_configs(GROUP_CONFIG, "workers", {"share.auto.offset.reset": "earliest"})


def run_scenario(konvene: VirtualKonvene) -> list[tuple[float, str, int]]:
    """Run two members, kill one of them with acquired records, and return all deliveries."""
    deliveries: list[tuple[float, str, int]] = []

    async def main() -> None:
        await configure_group(konvene)
        ann, bob = Worker(konvene, "ann"), Worker(konvene, "bob")
        for i in range(40):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            await asyncio.sleep(0.3)
        konvene.kill_host("bob")
        await konvene.until(
            lambda: {v for _, v, _ in ann.received + bob.received} == set(map(str, range(40)))
        )
        await asyncio.sleep(LOCK_S + 1)
        seen = len(ann.received)
        await asyncio.sleep(SESSION_S + LOCK_S)
        assert len(ann.received) == seen, "an accepted record was delivered again"
        assert ann.received and bob.received
        again = [v for _, v, count in ann.received if count > 1]
        assert set(again) <= {v for _, v, _ in bob.received}
        deliveries.extend(sorted(ann.received + bob.received))

    konvene.run(main)
    return deliveries


def test_records_of_a_killed_member_are_redelivered(virtual_konvene: VirtualKonvene) -> None:
    deliveries = run_scenario(virtual_konvene)
    assert {v for _, v, _ in deliveries} == set(map(str, range(40)))


def test_same_seed_gives_the_same_deliveries() -> None:
    runs = []
    for _ in range(2):
        with virtual(topics={"orders": 4}, seed=3) as konvene:
            runs.append(run_scenario(konvene))
    assert runs[0] == runs[1]


def test_killed_broker_redelivers_until_accepted(
    virtual_konvene: VirtualKonvene,
) -> None:
    konvene = virtual_konvene

    async def main() -> list[int | None]:
        await configure_group(konvene)
        workers = [Worker(konvene, "ann"), Worker(konvene, "bob")]
        await asyncio.sleep(2 * HEARTBEAT_S)
        for i in range(40):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            if i % 8 == 7:
                await konvene.restart(kill=True)
        everything = set(map(str, range(40)))
        await konvene.until(lambda: {v for w in workers for _, v, _ in w.received} == everything)
        await asyncio.sleep(2 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    assert konvene.run(main) == [0, 0, 0, 0]


def test_lost_responses_lose_no_record(virtual_konvene: VirtualKonvene) -> None:
    """Responses to ShareFetch with records and acknowledgements, and to heartbeats."""
    konvene = virtual_konvene

    async def main() -> list[int | None]:
        await configure_group(konvene)
        ann = Worker(konvene, "ann")
        for i, api in enumerate(("ShareFetch", "ShareGroupHeartbeat", "ShareFetch", "ShareFetch")):
            fault = konvene.faults.lose_response(api, client="ann")
            await konvene.produce("orders", [str(i)], partition=i)
            await konvene.until(lambda f=fault: f.applied)  # type: ignore[misc]
        await konvene.until(lambda: {v for _, v, _ in ann.received} == set("0123"))
        await asyncio.sleep(2 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    assert konvene.run(main) == [0, 0, 0, 0]


def test_released_records_are_delivered_without_lock_expiry(
    virtual_konvene: VirtualKonvene,
) -> None:
    konvene = virtual_konvene

    async def main() -> None:
        await configure_group(konvene)
        async with konvene.cluster("giver") as giver_cluster, konvene.cluster("taker") as taker_cluster:
            giver = ShareConsumer(giver_cluster, "workers", explicit=True)
            taker = ShareConsumer(taker_cluster, "workers")
            for each in (giver, taker):
                each.subscribe(["orders"])
            received = []
            await konvene.produce("orders", ["x"], partition=0)
            while not received:
                received = await giver.poll(1000)
            while not taker.assignment:
                await taker.poll(100)
            began = konvene.now
            giver.acknowledge(received[0], AcknowledgeType.RELEASE)
            await giver.commit()
            again = []
            while not again:
                again = await taker.poll(1000)
            assert again[0].delivery_count == 2
            assert konvene.now - began < 1
            await giver.close()
            await taker.close()

    konvene.run(main)


def test_commit_waits_while_the_assignment_changes(
    virtual_konvene: VirtualKonvene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new partition waits for the next poll; `commit` waits for its response or the timeout without a busy
    loop."""
    konvene, calls = virtual_konvene, 0
    ask = ShareConsumer._ask

    def counted(self: ShareConsumer, *, fetching: bool) -> None:
        nonlocal calls
        calls += 1
        assert calls < 500, "commit runs in a busy loop"
        ask(self, fetching=fetching)

    async def main() -> None:
        await configure_group(konvene)
        async with konvene.cluster("ann") as cluster, konvene.cluster("admin") as other:
            ann = ShareConsumer(cluster, "workers", explicit=True)
            ann.subscribe(["orders"])
            received = []
            await konvene.produce("orders", ["x"], partition=0)
            while not received:
                received = await ann.poll(1000)
            assert ann.member is not None
            ann.acknowledge(received[0])
            held = konvene.faults.hold("ShareAcknowledge", client="ann")
            await Admin(other).create_partitions("orders", 5)
            monkeypatch.setattr(ShareConsumer, "_ask", counted)
            result = await ann.commit(timeout_ms=20_000)
            assert ann.member.rejoin
            (error,) = result.values()
            assert isinstance(error, KafkaError) and error.code == Errors.REQUEST_TIMED_OUT
            held.release()
            assert await ann.commit() == {}
            await ann.close()

    konvene.run(main)


class Ledger:
    """Records whose acknowledgement was answered, of all members, and violations."""

    def __init__(self) -> None:
        self.done: set[tuple[int, int]] = set()
        self.violations: list[str] = []


class RandomWorker:
    """A share consumer with random acknowledgements and pauses, which records answered ones in the ledger."""

    def __init__(self, konvene: VirtualKonvene, name: str, ledger: Ledger, random: Random) -> None:
        self.konvene, self.name, self.ledger, self.random = konvene, name, ledger, random
        self.pending: dict[tuple[int, int], AcknowledgeType] = {}
        konvene.spawn(name, self.run())

    async def run(self) -> None:
        async with (
            self.konvene.cluster(self.name) as cluster,
            ShareConsumer(
                cluster,
                "workers",
                explicit=True,
                member_id=f"{self.name}-id",
                on_acknowledged=self.on_acknowledged,
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
            position = record.partition, record.offset
            if position in self.ledger.done:
                self.ledger.violations.append(
                    f"{position} was delivered to {self.name} after its acknowledgement"
                )
            weights = (85, 5, 5, 5) if record.delivery_count < 4 else (1, 0, 0, 0)
            kinds = (AcknowledgeType(number) for number in range(1, 5))
            (kind,) = self.random.choices(tuple(kinds), weights)
            self.pending[position] = kind
            consumer.acknowledge(record, kind)
        if self.random.random() < 0.3:
            await consumer.commit(5_000)
        if self.random.random() < 0.1:
            await asyncio.sleep(self.random.random() * 3)

    async def on_acknowledged(
        self, tp: TopicPartition, offsets: tuple[int, ...], error: ClientError | None
    ) -> None:
        for position in ((tp.partition, offset) for offset in offsets):
            kind = self.pending.pop(position)
            if error is None and kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                if position in self.ledger.done:
                    self.ledger.violations.append(f"{position} was acknowledged twice, last by {self.name}")
                self.ledger.done.add(position)


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_records_never_return_under_random_faults(seed: int) -> None:
    """Requests and responses are lost, the broker is killed, members crash and others join."""
    random, ledger, count = Random(seed), Ledger(), 60

    async def main() -> list[int | None]:
        await configure_group(konvene)
        names = ["ann", "bob", "cat"]
        for name in names:
            RandomWorker(konvene, name, ledger, random)
        for i in range(count):
            await konvene.produce("orders", [str(i)], partition=i % 4)
            await asyncio.sleep(random.random() * 0.3)
            event = random.random()
            if event < 0.15:
                lose = random.choice([konvene.faults.lose_response, konvene.faults.lose_request])
                apis = ("ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat", "Metadata")
                lose(random.choice(apis), client=random.choice(names))
            elif event < 0.18:
                await konvene.restart(kill=True)
            elif event < 0.20:
                konvene.kill_host(names.pop(0))
                names.append(f"new{i}")
                RandomWorker(konvene, names[-1], ledger, random)
        konvene.faults.clear()
        await asyncio.sleep(4 * LOCK_S)
        async with konvene.cluster("admin") as cluster:
            found = (await Admin(cluster).list_share_group_offsets({"workers": None}))["workers"]
            return [at.lag for at in found.values()]

    with virtual({"group.share.delivery.count.limit": 10}, {"orders": 4}, seed) as konvene:
        assert konvene.run(main) == [0, 0, 0, 0]
    assert ledger.violations == []
    assert len(ledger.done) > count / 2, "too few acknowledgements for a meaningful test"
