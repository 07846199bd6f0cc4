"""`TransactionalProducer` against a scripted coordinator, with transaction versions 1 and 2."""

from __future__ import annotations

import pytest
from tests.client.producer.test_producer import acknowledge, written
from tests.client.producer.transacting import (
    QUICK,
    TP,
    added,
    coordinator,
    ended,
    headers,
    identified,
    request_log,
    run_producer,
    sent,
)
from tests.client.scripted import HANG_UP

from konvene.client.errors import KafkaError, OutOfTurn, ProducerFenced, RequestTimedOut, TransactionFailed
from konvene.client.producer.transaction_state import State
from konvene.client.producer.transactional import TransactionalProducer
from konvene.errors import Errors

# both versions -----------------------------------------------------------------------------------


async def two_transactions(producer: TransactionalProducer) -> None:
    for value in (b"a", b"b"):
        async with producer.transaction():
            await producer.send("t", value, partition=0)
            await producer.flush()
            await producer.send_offsets_to_transaction({TP: 5}, "readers")


def test_version_2_adds_partitions_implicitly_and_bumps_the_epoch() -> None:
    with coordinator(2) as broker:
        run_producer(broker, two_transactions)
    assert request_log(broker) == [
        "InitProducerId v5",
        "Produce v13", "TxnOffsetCommit v6", "EndTxn v5",
        "Produce v13", "TxnOffsetCommit v6", "EndTxn v5",
    ]  # fmt: skip
    assert [(h.producer_epoch, h.base_sequence, h.is_transactional) for h in headers(broker)] == [
        (0, 0, True),
        (1, 0, True),
    ]
    assert [r.producer_epoch for r in sent(broker, "EndTxn")] == [0, 1]
    assert {r.transactional_id for r in sent(broker, "Produce")} == {"id"}


@pytest.mark.parametrize("level", [0, 1])
def test_version_1_adds_partitions_and_keeps_the_epoch(level: int) -> None:
    with coordinator(level) as broker:
        run_producer(broker, two_transactions)
    assert set(request_log(broker)) == {
        "InitProducerId v5", "AddPartitionsToTxn v3", "AddOffsetsToTxn v4", "TxnOffsetCommit v4",
        "Produce v11", "EndTxn v4",
    }  # fmt: skip
    apis = [line.split()[0] for line in request_log(broker)]
    assert apis.index("AddPartitionsToTxn") < apis.index("Produce") < apis.index("EndTxn")
    assert apis.index("AddOffsetsToTxn") < apis.index("TxnOffsetCommit") < apis.index("EndTxn")
    assert apis.count("AddPartitionsToTxn") == 2
    assert [(h.producer_epoch, h.base_sequence) for h in headers(broker)] == [(0, 0), (0, 1)]


def test_version_1_can_be_forced() -> None:
    with coordinator(2, EndTxn=ended()) as broker:
        run_producer(broker, two_transactions, transaction_version=1)
    assert "AddPartitionsToTxn v3" in request_log(broker)
    assert "EndTxn v4" in request_log(broker)


def test_upgrade_to_version_2_takes_effect_with_the_next_transaction() -> None:
    """The open transaction ends with version 1; before the next one the producer gets a new epoch."""

    async def job(producer: TransactionalProducer) -> tuple[int, int]:
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        await producer.flush()
        broker.features = {"transaction.version": 2}
        for host, port, _ in list(producer.cluster._connections):
            (await producer.cluster.connection(host, port)).close()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
        return producer.identity

    answers = [identified(), identified(epoch=1)]
    with coordinator(1, InitProducerId=answers, EndTxn=[ended(), ended(epoch=2)]) as broker:
        assert run_producer(broker, job) == (7, 2)
    assert request_log(broker) == [
        "InitProducerId v5", "AddPartitionsToTxn v3", "Produce v11", "EndTxn v4",
        "InitProducerId v5", "Produce v13", "EndTxn v5",
    ]  # fmt: skip
    assert [(r.producer_id, r.producer_epoch) for r in sent(broker, "InitProducerId")] == [(-1, -1), (7, 0)]


def test_partitions_are_added_once_and_in_batches() -> None:
    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        for partition in (0, 2, 0):
            await producer.send("t", b"a", partition=partition)
        await producer.flush()
        await producer.send("t", b"b", partition=2)
        await producer.send("t", b"b", partition=1)
        await producer.commit_transaction()

    with coordinator(1) as broker:
        run_producer(broker, job)
    rows = [r.v3_and_below_topics[0].partitions for r in sent(broker, "AddPartitionsToTxn")]
    assert rows == [(0, 2), (1,)]


@pytest.mark.parametrize("level", [1, 2])
def test_empty_transaction_sends_no_request(level: int) -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            pass
        producer.begin_transaction()
        await producer.abort_transaction()

    with coordinator(level) as broker:
        run_producer(broker, job)
    assert request_log(broker) == ["InitProducerId v5"]


# errors -------------------------------------------------------------------------------------------


def test_batch_with_lost_response_is_retried_with_its_sequence() -> None:
    with coordinator(Produce=[acknowledge(), HANG_UP, acknowledge()]) as broker:

        async def job(producer: TransactionalProducer) -> None:
            producer.begin_transaction()
            for value in (b"a", b"b"):
                await producer.send("t", value, partition=0)
                await producer.flush()
            await producer.commit_transaction()

        run_producer(broker, job)
    assert [h.base_sequence for h in headers(broker)] == [0, 1, 1]
    assert written(broker, 1) == written(broker, 2) == {0: [b"b"]}


def test_duplicate_sequence_counts_as_written() -> None:
    async def job(producer: TransactionalProducer) -> int:
        async with producer.transaction():
            done = await producer.send("t", b"a", partition=0)
        return done.result().offset

    with coordinator(Produce=acknowledge(Errors.DUPLICATE_SEQUENCE_NUMBER, -1)) as broker:
        assert run_producer(broker, job) == -1
    assert [r.committed for r in sent(broker, "EndTxn")] == [True]


@pytest.mark.parametrize("level", [1, 2])
def test_failed_write_makes_the_transaction_abortable(level: int) -> None:
    """After the abort the epoch is new: from EndTxn with version 2, from InitProducerId with version 1."""

    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        done = await producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionFailed, match="can only be aborted: writing to t-0: MESSAGE_TOO_LARGE"):
            await producer.commit_transaction()
        assert isinstance(done.exception(), KafkaError)
        with pytest.raises(TransactionFailed):
            await producer.send("t", b"b", partition=0)
        assert producer.state is State.ABORTABLE_ERROR
        await producer.abort_transaction()
        assert producer.identity == (7, 1)
        async with producer.transaction():
            await producer.send("t", b"c", partition=0)

    answers = {"Produce": [acknowledge(Errors.MESSAGE_TOO_LARGE), acknowledge()]}
    with coordinator(level, InitProducerId=[identified(), identified(epoch=1)], **answers) as broker:
        run_producer(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False, True]
    assert [(h.producer_epoch, h.base_sequence) for h in headers(broker)] == [(0, 0), (1, 0)]
    assert len(sent(broker, "InitProducerId")) == (2 if level == 1 else 1)


def test_fenced_producer_rejects_all_calls() -> None:
    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        for call in (producer.commit_transaction, producer.abort_transaction, producer.init_transactions):
            with pytest.raises(ProducerFenced):
                await call()
        with pytest.raises(ProducerFenced):
            producer.begin_transaction()
        assert producer.state is State.FATAL_ERROR

    with coordinator(EndTxn=ended(Errors.PRODUCER_FENCED)) as broker:
        run_producer(broker, job)


def test_error_in_the_block_aborts_and_propagates() -> None:
    """Buffered records are not sent."""

    async def job(producer: TransactionalProducer) -> None:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                done = await producer.send("t", b"a", partition=0)
                raise ZeroDivisionError
        with pytest.raises(TransactionFailed, match="was aborted"):
            done.result()
        assert producer.state is State.READY

    with coordinator() as broker:
        run_producer(broker, job)
    assert request_log(broker) == ["InitProducerId v5", "EndTxn v5"]
    assert not sent(broker, "EndTxn")[0].committed


def test_failed_commit_is_aborted_by_the_block() -> None:
    async def job(producer: TransactionalProducer) -> State:
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        return producer.state

    with coordinator(Produce=acknowledge(Errors.MESSAGE_TOO_LARGE)) as broker:
        assert run_producer(broker, job) is State.READY
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_close_aborts_an_open_transaction() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer:
            producer.begin_transaction()
            await producer.send("t", b"a", partition=0)
            await producer.flush()

    with coordinator() as broker:
        run_producer(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_concurrent_transactions_error_is_retried() -> None:
    busy = Errors.CONCURRENT_TRANSACTIONS
    answers = {
        "InitProducerId": [identified(busy), identified()],
        "AddPartitionsToTxn": [added(busy), added()],
        "EndTxn": [ended(busy), ended()],
    }
    with coordinator(1, **answers) as broker:

        async def job(producer: TransactionalProducer) -> None:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)

        run_producer(broker, job)
    apis = [line.split()[0] for line in request_log(broker)]
    assert apis == ["InitProducerId"] * 2 + ["AddPartitionsToTxn"] * 2 + ["Produce"] + ["EndTxn"] * 2


def test_error_adding_partitions_names_the_cause() -> None:
    """The other partitions were not attempted."""

    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            await producer.send("t", b"a", partition=partition)
        with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.commit_transaction()
        await producer.abort_transaction()

    response = added(Errors.OPERATION_NOT_ATTEMPTED, Errors.TOPIC_AUTHORIZATION_FAILED)
    with coordinator(1, AddPartitionsToTxn=response) as broker:
        run_producer(broker, job)
    assert "Produce v11" not in request_log(broker)


@pytest.mark.parametrize("code", [Errors.INVALID_TXN_STATE, Errors.INVALID_PRODUCER_EPOCH])
def test_adding_partitions_to_an_ended_transaction_is_fatal(code: Errors) -> None:
    async def job(producer: TransactionalProducer) -> State:
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        return producer.state

    with coordinator(1, AddPartitionsToTxn=added(code)) as broker:
        assert run_producer(broker, job) is State.FATAL_ERROR


def test_timed_out_commit_can_be_retried() -> None:
    """The coordinator answers the retry like the first request; an abort in between is rejected."""
    hasty = QUICK._replace(request_timeout_ms=60, default_api_timeout_ms=50)

    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(RequestTimedOut):
            await producer.commit_transaction()
        assert producer.state is State.COMMITTING
        with pytest.raises(OutOfTurn):
            await producer.abort_transaction()
        await producer.commit_transaction()

    with coordinator(EndTxn=[None, ended(epoch=1)]) as broker:
        run_producer(broker, job, hasty)
    assert [r.producer_epoch for r in sent(broker, "EndTxn")] == [0, 0]
