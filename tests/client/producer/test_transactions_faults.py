"""Transactions stay atomic if messages are lost, duplicated or rejected, or the broker is killed."""

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

APIS = {
    1: ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    2: ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"),
}
"""APIs of a transaction, by transaction version."""

RETRIABLE_ERRORS = {
    "InitProducerId": "CONCURRENT_TRANSACTIONS", "AddPartitionsToTxn": "CONCURRENT_TRANSACTIONS",
    "Produce": "NOT_LEADER_OR_FOLLOWER", "AddOffsetsToTxn": "NOT_COORDINATOR",
    "TxnOffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS", "EndTxn": "COORDINATOR_NOT_AVAILABLE",
}  # fmt: skip
"""A retriable error of each API."""

each_message = pytest.mark.parametrize(
    "version, api", [(version, api) for version, names in APIS.items() for api in names]
)


async def five_transactions(konvene: Konvene, version: int, step: Step) -> None:
    """Write to two partitions and commit an offset in each; abort every second one; check the results."""
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


def run_transactions(konvene: Konvene, version: int, step: Step | None = None) -> None:
    async def nothing(_: int) -> None:
        """Inject no fault."""

    asyncio.run(five_transactions(konvene, version, step or nothing))


@each_message
@pytest.mark.parametrize("nth", [1, 2])
def test_lost_messages_are_retried(version: int, api: str, nth: int) -> None:
    """The request, the response, or the second half of the response is lost."""
    for lose in ("lose_request", "lose_response", "cut"):
        with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
            fault = getattr(konvene.faults, lose)(api, nth=nth)
            run_transactions(konvene, version)
            assert fault.applied or (api == "InitProducerId" and nth == 2)


@pytest.mark.parametrize(
    "version, api", [(version, api) for version, names in APIS.items() for api in names[1:]]
)
def test_duplicated_requests_have_no_effect(version: int, api: str) -> None:
    """InitProducerId is left out: a duplicate fences the producer."""
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
        fault = konvene.faults.duplicate(api, times=None)
        run_transactions(konvene, version)
        assert fault.applied


@each_message
def test_retriable_errors_are_retried(version: int, api: str) -> None:
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
        fault = konvene.faults.answer(api, RETRIABLE_ERRORS[api], times=3)
        run_transactions(konvene, version)
        assert fault.applied


@pytest.mark.parametrize("version", APIS)
@pytest.mark.parametrize("at", range(4))
def test_transactions_continue_after_the_broker_was_killed(version: int, at: int) -> None:
    """Before InitProducerId, between sends, after the flush, or before the end of the transaction."""
    with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:

        async def kill(step: int) -> None:
            if step == at:
                await asyncio.to_thread(konvene.restart, kill=True)

        run_transactions(konvene, version, kill)


@pytest.mark.parametrize("version", APIS)
def test_random_losses_are_retried(version: int) -> None:
    """Of any API, including metadata and coordinator lookups."""
    lost = 0
    for seed in range(SEEDS):
        with broker(SETTINGS, {"t": 2, "read": 1}) as konvene:
            faults = konvene.faults
            kinds = (faults.lose_request, faults.lose_response, faults.cut)
            armed = [lose(probability=0.1, seed=3 * seed + i, times=None) for i, lose in enumerate(kinds)]
            run_transactions(konvene, version)
            lost += sum(fault.applied for fault in armed)
    assert lost > SEEDS
