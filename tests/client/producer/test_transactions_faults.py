"""A transaction in which one message is lost, doubled or refused, or the broker is killed, is still whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from konvene.client.admin.admin import Admin
from konvene.client.consumer.fetch import READ_COMMITTED, read_partition
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.transactional import TransactionalProducer
from konvene.testing import Konvene, broker

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=20)
SETTINGS = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
READ = TopicPartition("read", 0)

SEEDS = 6

Step = Callable[[int], Awaitable[None]]

SPOKEN = {
    1: ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    2: ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"),
}
"""What each generation says of transactions."""

REFUSALS = {
    "InitProducerId": "CONCURRENT_TRANSACTIONS", "AddPartitionsToTxn": "CONCURRENT_TRANSACTIONS",
    "Produce": "NOT_LEADER_OR_FOLLOWER", "AddOffsetsToTxn": "NOT_COORDINATOR",
    "TxnOffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS", "EndTxn": "COORDINATOR_NOT_AVAILABLE",
}  # fmt: skip
"""What may be said of each, after which it is asked again."""

each_message = pytest.mark.parametrize(
    "version, api", [(version, api) for version, names in SPOKEN.items() for api in names]
)


async def five_transactions(konvene: Konvene, version: int, step: Step) -> None:
    """Each reads one more and writes it to two partitions; every second one is aborted. All is counted."""
    async with Cluster(konvene.bootstrap, QUICK) as cluster:
        producer = TransactionalProducer(cluster, "id", transaction_version=version)
        await step(0)
        await producer.init_transactions()
        for i in range(5):
            producer.begin_transaction()
            for partition in (0, 1):
                await producer.send("t", b"%d" % i, partition=partition)
                await step(1)
            await producer.flush()
            await step(2)
            await producer.send_offsets_to_transaction({READ: i + 1}, "readers")
            await step(3)
            await (producer.abort_transaction() if i % 2 else producer.commit_transaction())
        admin = Admin(cluster)
        assert (await admin.committed_offsets("readers", require_stable=True))[READ].offset == 5
        for partition in (0, 1):
            tp = TopicPartition("t", partition)
            found = [r.value async for r in read_partition(cluster, tp, isolation_level=READ_COMMITTED)]
            assert found == [b"0", b"2", b"4"]
            assert [r async for r in read_partition(cluster, tp)][-1].value == b"4"
        assert [t.state for t in await admin.list_transactions()] == ["CompleteCommit"]


def play(konvene: Konvene, version: int, step: Step | None = None) -> None:
    async def nothing(_: int) -> None:
        """Steps at which nothing happens."""

    asyncio.run(five_transactions(konvene, version, step or nothing))


@each_message
@pytest.mark.parametrize("nth", [1, 2])
def test_a_message_that_is_lost_changes_nothing(version: int, api: str, nth: int) -> None:
    """Before the broker saw it, behind it, or in the middle of the answer."""
    for lose in ("lose_request", "lose_response", "cut"):
        with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
            fault = getattr(konvene.faults, lose)(api, nth=nth)
            play(konvene, version)
            assert fault.applied or (api == "InitProducerId" and nth == 2)


@pytest.mark.parametrize(
    "version, api", [(version, api) for version, names in SPOKEN.items() for api in names[1:]]
)
def test_a_message_that_comes_twice_changes_nothing(version: int, api: str) -> None:
    """Except InitProducerId, of which the second one fences the first."""
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
        fault = konvene.faults.duplicate(api, times=None)
        play(konvene, version)
        assert fault.applied


@each_message
def test_a_refusal_that_may_pass_is_waited_for(version: int, api: str) -> None:
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
        fault = konvene.faults.answer(api, REFUSALS[api], times=3)
        play(konvene, version)
        assert fault.applied


@pytest.mark.parametrize("version", SPOKEN)
@pytest.mark.parametrize("at", range(4))
def test_a_broker_that_is_killed_and_starts_again_is_waited_for(version: int, at: int) -> None:
    """Before the id is taken over, while records are on their way, when they stand, and before the end."""
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:

        async def kill(step: int) -> None:
            if step == at:
                await asyncio.to_thread(konvene.restart, kill=True)

        play(konvene, version, kill)


@pytest.mark.parametrize("version", SPOKEN)
def test_many_losses_change_nothing(version: int) -> None:
    """Of everything that is said, also of what finds and asks the brokers."""
    lost = 0
    for seed in range(SEEDS):
        with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
            faults = konvene.faults
            ways = (faults.lose_request, faults.lose_response, faults.cut)
            armed = [lose(probability=0.1, seed=3 * seed + i, times=None) for i, lose in enumerate(ways)]
            play(konvene, version)
            lost += sum(fault.applied for fault in armed)
    assert lost > SEEDS
