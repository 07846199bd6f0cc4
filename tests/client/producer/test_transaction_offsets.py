"""Offsets in transactions: consumer group metadata, retries, and rejected commits."""

from __future__ import annotations

import pytest
from tests.client.producer.transacting import (
    QUICK,
    TP,
    committed,
    coordinator,
    identified,
    request_log,
    run_producer,
    sent,
)

from konvene.client.errors import KafkaError, RequestTimedOut, TransactionFailed
from konvene.client.net.cluster import TopicPartition
from konvene.client.producer.transaction_state import State
from konvene.client.producer.transactional import ConsumerGroupMetadata, TransactionalProducer
from konvene.errors import Errors


def test_offset_commits_have_the_consumers_group_metadata() -> None:
    metadata = ConsumerGroupMetadata("readers", 3, "ann-1", "ann")

    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5, TopicPartition("t", 2): 6}, metadata)

    with coordinator(1) as broker:
        run_producer(broker, job)
    (request,) = sent(broker, "TxnOffsetCommit")
    assert (request.group_id, request.generation_id_or_member_epoch) == ("readers", 3)
    assert (request.member_id, request.group_instance_id) == ("ann-1", "ann")
    assert [(p.partition_index, p.committed_offset) for p in request.topics[0].partitions] == [(0, 5), (2, 6)]
    assert [r.group_id for r in sent(broker, "AddOffsetsToTxn")] == ["readers"]
    assert [r.committed for r in sent(broker, "EndTxn")] == [True]


def test_only_rejected_offsets_are_retried() -> None:
    async def job(producer: TransactionalProducer) -> None:
        await producer.cluster.topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5, TopicPartition("t", 1): 6}, "readers")

    answers = [committed(p1=Errors.UNKNOWN_TOPIC_OR_PARTITION), committed()]
    with coordinator(TxnOffsetCommit=answers) as broker:
        run_producer(broker, job)
    rows = [[p.partition_index for p in r.topics[0].partitions] for r in sent(broker, "TxnOffsetCommit")]
    assert rows == [[0, 1], [1]]


def test_topics_with_unknown_ids_are_sent_by_name() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("elsewhere", 0): 5}, "readers")

    with coordinator() as broker:
        run_producer(broker, job)
    assert "TxnOffsetCommit v5" in request_log(broker)


def test_recreated_topics_are_retried_by_name() -> None:
    async def job(producer: TransactionalProducer) -> None:
        await producer.cluster.topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5}, "readers")

    answers = [committed(p0=Errors.UNKNOWN_TOPIC_ID), committed()]
    with coordinator(TxnOffsetCommit=answers) as broker:
        run_producer(broker, job)
    assert [line for line in request_log(broker) if "Commit" in line] == [
        "TxnOffsetCommit v6",
        "TxnOffsetCommit v5",
    ]


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "TxnOffsetCommit"])
def test_the_epoch_is_bumped_after_an_offset_commit_with_unknown_result(api: str) -> None:
    """With transaction version 1 a late request would otherwise be part of the next transaction."""
    hasty = QUICK._replace(request_timeout_ms=60, default_api_timeout_ms=50)

    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        with pytest.raises(RequestTimedOut):
            await producer.send_offsets_to_transaction({TP: 5}, "readers")
        assert producer.state is State.ABORTABLE_ERROR
        await producer.abort_transaction()
        assert producer.identity == (7, 1)

    answers = {api: None, "InitProducerId": [identified(), identified(epoch=1)]}
    with coordinator(1, **answers) as broker:
        run_producer(broker, job, hasty)
    assert [r.producer_epoch for r in sent(broker, "InitProducerId")] == [-1, 0]


@pytest.mark.parametrize("code", [Errors.ILLEGAL_GENERATION, Errors.STALE_MEMBER_EPOCH])
def test_a_fenced_member_cannot_commit_but_can_abort(code: Errors) -> None:
    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        with pytest.raises(KafkaError, match=code.name):
            await producer.send_offsets_to_transaction({TP: 5}, ConsumerGroupMetadata("readers", 3, "ann"))
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()

    with coordinator(TxnOffsetCommit=committed(p0=code)) as broker:
        run_producer(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_empty_offsets_send_no_request() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, "readers")

    with coordinator() as broker:
        run_producer(broker, job)
    assert request_log(broker) == ["InitProducerId v5"]
