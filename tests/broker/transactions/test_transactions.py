"""Transactions over a connection: both client protocols, commits, aborts, fencing, timeouts, isolation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.codec.batches import build_simple
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_transactions import ListTransactionsRequest
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC, GROUP, NAME = "orders", "billing", "till"
QUICK = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
OLD, NEW = 4, 5
"""EndTxn versions of clients with transaction version 1 and 2."""


class Client:
    """A scripted transactional producer."""

    def __init__(self, broker_client: BrokerClient, end_version: int) -> None:
        self.broker_client = broker_client
        self.version = end_version
        self.producer_id = self.epoch = -1
        self.sequence = 0

    async def init(self, timeout_ms: int = 60_000, **producer: int) -> int:
        await self.broker_client.send(FindCoordinatorRequest(key_type=1, coordinator_keys=(NAME,)))
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=timeout_ms, **producer)
        for _ in range(100):
            answer = await self.broker_client.send(request)
            if answer.error_code != Errors.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.01)
        if not answer.error_code:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def add(self, partition: int = 0) -> int:
        topics = (AddPartitionsToTxnTopic(name=TOPIC, partitions=(partition,)),)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.broker_client.send(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def write(self, *values: bytes, partition: int = 0, name: str | None = NAME) -> int:
        now_ms = self.broker_client.broker.environment.wall_clock_ms()
        data = bytes(
            build_simple(
                [(None, value) for value in values], now_ms, producer_id=self.producer_id,
                producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True, base_offset=0,
            )
        )  # fmt: skip
        rows = (PartitionProduceData(index=partition, records=data),)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=1_000,
            topic_data=(TopicProduceData(name=TOPIC, partition_data=rows),),
        )
        answer = await self.broker_client.send(request, 12 if self.version == NEW else 11)
        error = answer.responses[0].partition_responses[0].error_code
        if not error:
            self.sequence += len(values)
        return int(error)

    async def add_offsets(self) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=NAME, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=GROUP
        )
        return int((await self.broker_client.send(request)).error_code)

    async def commit_offset(self, offset: int) -> int:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id="",
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
        answer = await self.broker_client.send(request, 5 if self.version == NEW else 3)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=NAME, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = await self.broker_client.send(request, self.version)
        if self.version == NEW and not answer.error_code:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)


class Reader:
    """Reads offsets and records with read_committed isolation, and describes the transaction."""

    def __init__(self, broker_client: BrokerClient) -> None:
        self.broker_client = broker_client

    async def offset(self, *, stable: bool = True) -> tuple[int, int]:
        """Return the group's committed offset and the error."""
        topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),)
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        answer = await self.broker_client.send(OffsetFetchRequest(groups=(group,), require_stable=stable), 9)
        partition = answer.groups[0].topics[0].partitions[0]
        return int(partition.committed_offset), int(partition.error_code)

    async def committed(self, partition: int = 0) -> tuple[int, list[tuple[int, int]]]:
        """Return the last stable offset, and producer id and first offset of each aborted transaction."""
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1,
            topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),),
        )  # fmt: skip
        answer = await self.broker_client.send(request, 12)
        result = answer.responses[0].partitions[0]
        aborted = [(a.producer_id, a.first_offset) for a in result.aborted_transactions or ()]
        return int(result.last_stable_offset), aborted

    async def state(self) -> Any:
        return (
            await self.broker_client.send(DescribeTransactionsRequest(transactional_ids=(NAME,)))
        ).transaction_states[0]


async def eventually(path: Any, wanted: Any) -> None:
    for _ in range(200):
        if (seen := await path()) == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{seen} is not {wanted}")


async def started(broker_client: BrokerClient, version: int) -> tuple[Client, Reader]:
    await broker_client.topic(TOPIC, 2)
    await broker_client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,)))
    client = Client(broker_client, version)
    assert await client.init() == 0
    return client, Reader(broker_client)


async def consume_and_produce(client: Client, offset: int) -> None:
    """Write records and commit an offset in a transaction, without ending it."""
    if client.version == OLD:
        assert await client.add() == 0
        assert await client.add_offsets() == 0
    assert await client.write(b"one", b"two") == 0
    assert await client.commit_offset(offset) == 0


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("commit", [True, False])
def test_records_and_offsets_are_committed_atomically(tmp_path: Path, version: int, commit: bool) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, version)
        assert (await reader.offset()) == (-1, 0)
        await consume_and_produce(client, 7)
        assert (await reader.offset()) == (-1, Errors.UNSTABLE_OFFSET_COMMIT)
        assert (await reader.offset(stable=False)) == (-1, 0)
        assert await reader.committed() == (0, [])
        assert (await reader.state()).transaction_state == "Ongoing"
        producer = client.producer_id
        assert await client.end(commit=commit) == 0
        await eventually(reader.offset, (7 if commit else -1, 0))
        await eventually(reader.committed, (3, [] if commit else [(producer, 0)]))
        done = "CompleteCommit" if commit else "CompleteAbort"
        assert (await reader.state()).transaction_state == done
        assert client.epoch == (1 if version == NEW else 0)
        await consume_and_produce(client, 9)
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (9, 0))

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_open_transaction_survives_a_restart(tmp_path: Path, version: int) -> None:
    """The producer continues and commits it."""
    clients: list[Client] = []

    async def before(broker_client: BrokerClient) -> None:
        client, _ = await started(broker_client, version)
        await consume_and_produce(client, 7)
        clients.append(client)

    async def after(broker_client: BrokerClient) -> None:
        client, reader = clients[0], Reader(broker_client)
        client.broker_client = broker_client
        assert (await reader.offset()) == (-1, Errors.UNSTABLE_OFFSET_COMMIT)
        assert await reader.committed() == (0, [])
        assert await client.write(b"three") == 0
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (7, 0))
        await eventually(reader.committed, (4, []))

    run_with_broker(tmp_path, before, QUICK)
    run_with_broker(tmp_path, after, QUICK)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_new_producer_fences_the_previous_one(tmp_path: Path, version: int) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        zombie, reader = await started(broker_client, version)
        await consume_and_produce(zombie, 7)
        client = Client(broker_client, version)
        assert await client.init() == 0
        assert client.producer_id == zombie.producer_id
        assert client.epoch > zombie.epoch
        assert (await reader.offset()) == (-1, 0)
        assert await zombie.write(b"late") == Errors.INVALID_PRODUCER_EPOCH
        assert await zombie.commit_offset(8) == Errors.INVALID_PRODUCER_EPOCH
        assert await zombie.end(commit=True) == Errors.PRODUCER_FENCED
        await consume_and_produce(client, 9)
        assert await client.end(commit=True) == 0
        await eventually(reader.offset, (9, 0))

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_is_aborted_after_its_timeout(tmp_path: Path, version: int) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, version)
        assert await client.init(timeout_ms=100) == 0
        await consume_and_produce(client, 7)
        await eventually(reader.offset, (-1, 0))
        assert (await reader.state()).transaction_state == "CompleteAbort"
        assert await client.write(b"late") == Errors.INVALID_PRODUCER_EPOCH
        # With transaction version 2 the producer may have ended the transaction itself.
        fenced = Errors.PRODUCER_FENCED if version == OLD else Errors.INVALID_TXN_STATE
        assert await client.end(commit=True) == fenced

    run_with_broker(tmp_path, scenario, QUICK)


def test_writes_to_partitions_that_were_not_added_are_rejected(tmp_path: Path) -> None:
    """Clients with transaction version 1 have to add partitions first; nothing is written otherwise."""

    async def scenario(broker_client: BrokerClient) -> None:
        client, reader = await started(broker_client, OLD)
        assert await client.write(b"never added") == Errors.TRANSACTION_ABORTABLE
        assert await client.commit_offset(7) == Errors.INVALID_TXN_STATE
        assert await client.add(1) == 0
        assert await client.write(b"not this one") == Errors.TRANSACTION_ABORTABLE
        assert await client.write(b"this one", partition=1) == 0
        assert await reader.committed(0) == (0, [])
        assert await client.write(b"nameless", name=None) == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run_with_broker(tmp_path, scenario, QUICK)


def test_offsets_of_an_uninitialized_group_do_not_block_the_commit(tmp_path: Path) -> None:
    """Before `__consumer_offsets` exists there is no partition for the marker."""

    async def scenario(broker_client: BrokerClient) -> None:
        await broker_client.topic(TOPIC, 1)
        client, reader = Client(broker_client, OLD), Reader(broker_client)
        assert await client.init() == 0
        assert await client.add_offsets() == 0
        assert await client.end(commit=True) == 0

        async def state() -> str:
            return str((await reader.state()).transaction_state)

        await eventually(state, "CompleteCommit")

    run_with_broker(tmp_path, scenario, QUICK)


def test_transactions_are_listed(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        none = await broker_client.send(ListTransactionsRequest(state_filters=("Empty", "Nonsense")))
        assert (none.transaction_states, none.unknown_state_filters) == ((), ("Nonsense",))
        wrong = ListTransactionsRequest(transactional_id_pattern="(")
        assert (await broker_client.send(wrong)).error_code == Errors.INVALID_REGULAR_EXPRESSION
        client, _ = await started(broker_client, NEW)
        await consume_and_produce(client, 7)
        (listed,) = (await broker_client.send(ListTransactionsRequest())).transaction_states
        assert (listed.transactional_id, listed.transaction_state) == (NAME, "Ongoing")
        none = await broker_client.send(ListTransactionsRequest(state_filters=("Empty", "Nonsense")))
        assert (none.transaction_states, none.unknown_state_filters) == ((), ("Nonsense",))
        assert (await broker_client.send(wrong)).error_code == Errors.INVALID_REGULAR_EXPRESSION

    run_with_broker(tmp_path, scenario, QUICK)
