"""What a transactional producer says, in both generations, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.scripted import HANG_UP, ScriptedBroker
from tests.client.test_producer import acknowledge, written

from konvene.client.cluster import Cluster, TopicPartition
from konvene.client.errors import KafkaError, OutOfTurn, ProducerFenced, RequestTimedOut, TransactionFailed
from konvene.client.settings import ClientSettings
from konvene.client.transaction_state import State
from konvene.client.transactional_producer import ConsumerGroupMetadata, TransactionalProducer
from konvene.codec.batches import BatchHeader, read_header
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from konvene.messages.end_txn import EndTxnResponse
from konvene.messages.init_producer_id import InitProducerIdResponse
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)
TP = TopicPartition("t", 0)

Job = Callable[[TransactionalProducer], Coroutine[Any, Any, Any]]


def added(*codes: int) -> Callable[[Any], AddPartitionsToTxnResponse]:
    """Every partition of the request gets the first code, or each its own."""

    def answer(request: Any) -> AddPartitionsToTxnResponse:
        given = list(codes or (0,))
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=t.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(
                            partition_index=p,
                            partition_error_code=given.pop(0) if len(given) > 1 else given[0],
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.v3_and_below_topics
            )
        )

    return answer


def committed(**codes: int) -> Callable[[Any], TxnOffsetCommitResponse]:
    """`p0=14`: the code of partition 0; the others are taken."""

    def answer(request: Any) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=t.name,
                    topic_id=t.topic_id,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=codes.get(f"p{p.partition_index}", 0),
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
        )

    return answer


def ended(code: int = 0, epoch: int = -1) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=7 if epoch >= 0 else -1, producer_epoch=epoch)


def identified(code: int = 0, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)


def coordinator(level: int = 2, **answers: Any) -> ScriptedBroker:
    """A cluster at this level of `transaction.version`, in which all goes well but what is given."""
    usual = {
        "InitProducerId": identified(), "Produce": acknowledge(), "AddPartitionsToTxn": added(),
        "AddOffsetsToTxn": AddOffsetsToTxnResponse(), "TxnOffsetCommit": committed(),
        "EndTxn": ended(epoch=1) if level > 1 else ended(),
    }  # fmt: skip
    broker = ScriptedBroker(**(usual | answers))
    broker.features = {"transaction.version": level} if level else {}
    return broker


def play(broker: ScriptedBroker, job: Job, settings: ClientSettings = QUICK, **options: Any) -> Any:
    """Run a job with a producer that has been initialized."""
    broker.answers["Metadata"] = [broker.metadata(t=3)]

    async def whole() -> Any:
        async with Cluster(broker.address, settings) as cluster:
            producer = TransactionalProducer(cluster, "id", **options)
            await producer.init_transactions()
            return await job(producer)

    return asyncio.run(whole())


def said(broker: ScriptedBroker) -> list[str]:
    """What was asked, without the looking up."""
    return [line for line in broker.asked if not line.startswith(("Metadata", "FindCoordinator"))]


def sent(broker: ScriptedBroker, api: str) -> list[Any]:
    return [r for name, r in zip(broker.apis, broker.requests, strict=True) if name == api]


def headers(broker: ScriptedBroker) -> list[BatchHeader]:
    return [
        read_header(bytes(p.records))
        for request in sent(broker, "Produce")
        for t in request.topic_data
        for p in t.partition_data
    ]


# both generations ---------------------------------------------------------------------------------


async def two_transactions(producer: TransactionalProducer) -> None:
    for value in (b"a", b"b"):
        async with producer.transaction():
            await producer.send("t", value, partition=0)
            await producer.flush()
            await producer.send_offsets_to_transaction({TP: 5}, "readers")


def test_in_the_second_generation_the_broker_adds_and_each_transaction_has_an_epoch() -> None:
    with coordinator(2) as broker:
        play(broker, two_transactions)
    assert said(broker) == [
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
def test_in_the_first_generation_the_client_adds_and_the_epoch_stays(level: int) -> None:
    with coordinator(level) as broker:
        play(broker, two_transactions)
    assert set(said(broker)) == {
        "InitProducerId v5", "AddPartitionsToTxn v3", "AddOffsetsToTxn v4", "TxnOffsetCommit v4",
        "Produce v11", "EndTxn v4",
    }  # fmt: skip
    asked = [line.split()[0] for line in said(broker)]
    assert asked.index("AddPartitionsToTxn") < asked.index("Produce") < asked.index("EndTxn")
    assert asked.index("AddOffsetsToTxn") < asked.index("TxnOffsetCommit") < asked.index("EndTxn")
    assert asked.count("AddPartitionsToTxn") == 2
    assert [(h.producer_epoch, h.base_sequence) for h in headers(broker)] == [(0, 0), (0, 1)]


def test_the_first_generation_can_be_asked_for() -> None:
    with coordinator(2, EndTxn=ended()) as broker:
        play(broker, two_transactions, transaction_version=1)
    assert "AddPartitionsToTxn v3" in said(broker)
    assert "EndTxn v4" in said(broker)


def test_a_cluster_that_comes_to_the_second_generation_is_followed_with_the_next_transaction() -> None:
    """The one under way ends as it began, and before the next the client asks for another epoch."""

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
        assert play(broker, job) == (7, 2)
    assert said(broker) == [
        "InitProducerId v5", "AddPartitionsToTxn v3", "Produce v11", "EndTxn v4",
        "InitProducerId v5", "Produce v13", "EndTxn v5",
    ]  # fmt: skip
    assert [(r.producer_id, r.producer_epoch) for r in sent(broker, "InitProducerId")] == [(-1, -1), (7, 0)]


def test_partitions_are_added_once_and_all_of_a_round_together() -> None:
    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        for partition in (0, 2, 0):
            await producer.send("t", b"a", partition=partition)
        await producer.flush()
        await producer.send("t", b"b", partition=2)
        await producer.send("t", b"b", partition=1)
        await producer.commit_transaction()

    with coordinator(1) as broker:
        play(broker, job)
    rows = [r.v3_and_below_topics[0].partitions for r in sent(broker, "AddPartitionsToTxn")]
    assert rows == [(0, 2), (1,)]


@pytest.mark.parametrize("level", [1, 2])
def test_of_a_transaction_in_which_nothing_was_done_nobody_is_told(level: int) -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            pass
        producer.begin_transaction()
        await producer.abort_transaction()

    with coordinator(level) as broker:
        play(broker, job)
    assert said(broker) == ["InitProducerId v5"]


# errors -------------------------------------------------------------------------------------------


def test_a_batch_whose_answer_was_lost_is_sent_again_with_its_sequence() -> None:
    with coordinator(Produce=[acknowledge(), HANG_UP, acknowledge()]) as broker:

        async def job(producer: TransactionalProducer) -> None:
            producer.begin_transaction()
            for value in (b"a", b"b"):
                await producer.send("t", value, partition=0)
                await producer.flush()
            await producer.commit_transaction()

        play(broker, job)
    assert [h.base_sequence for h in headers(broker)] == [0, 1, 1]
    assert written(broker, 1) == written(broker, 2) == {0: [b"b"]}


def test_a_batch_that_stands_already_is_written() -> None:
    async def job(producer: TransactionalProducer) -> int:
        async with producer.transaction():
            done = await producer.send("t", b"a", partition=0)
        return done.result().offset

    with coordinator(Produce=acknowledge(Errors.DUPLICATE_SEQUENCE_NUMBER, -1)) as broker:
        assert play(broker, job) == -1
    assert [r.committed for r in sent(broker, "EndTxn")] == [True]


@pytest.mark.parametrize("level", [1, 2])
def test_a_record_that_cannot_be_written_leaves_a_transaction_that_can_only_be_aborted(level: int) -> None:
    """Then there is another epoch: the broker's in the second generation, in the first one asked for."""

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
        play(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False, True]
    assert [(h.producer_epoch, h.base_sequence) for h in headers(broker)] == [(0, 0), (1, 0)]
    assert len(sent(broker, "InitProducerId")) == (2 if level == 1 else 1)


def test_who_was_fenced_can_do_nothing_any_more() -> None:
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
        play(broker, job)


def test_a_body_that_raises_is_aborted_and_its_error_goes_on() -> None:
    """Records that wait are not sent any more."""

    async def job(producer: TransactionalProducer) -> None:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                done = await producer.send("t", b"a", partition=0)
                raise ZeroDivisionError
        with pytest.raises(TransactionFailed, match="was aborted"):
            done.result()
        assert producer.state is State.READY

    with coordinator() as broker:
        play(broker, job)
    assert said(broker) == ["InitProducerId v5", "EndTxn v5"]
    assert not sent(broker, "EndTxn")[0].committed


def test_a_commit_that_fails_is_aborted_by_the_block_around_it() -> None:
    async def job(producer: TransactionalProducer) -> State:
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        return producer.state

    with coordinator(Produce=acknowledge(Errors.MESSAGE_TOO_LARGE)) as broker:
        assert play(broker, job) is State.READY
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_what_is_open_at_the_end_is_aborted() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer:
            producer.begin_transaction()
            await producer.send("t", b"a", partition=0)
            await producer.flush()

    with coordinator() as broker:
        play(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_the_end_of_the_last_transaction_is_waited_for() -> None:
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

        play(broker, job)
    asked = [line.split()[0] for line in said(broker)]
    assert asked == ["InitProducerId"] * 2 + ["AddPartitionsToTxn"] * 2 + ["Produce"] + ["EndTxn"] * 2


def test_of_partitions_that_cannot_be_added_the_reason_is_told() -> None:
    """The others were left out because of it."""

    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            await producer.send("t", b"a", partition=partition)
        with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.commit_transaction()
        await producer.abort_transaction()

    answer = added(Errors.OPERATION_NOT_ATTEMPTED, Errors.TOPIC_AUTHORIZATION_FAILED)
    with coordinator(1, AddPartitionsToTxn=answer) as broker:
        play(broker, job)
    assert "Produce v11" not in said(broker)


@pytest.mark.parametrize("code", [Errors.INVALID_TXN_STATE, Errors.INVALID_PRODUCER_EPOCH])
def test_a_coordinator_that_has_ended_the_transaction_adds_no_partitions_to_it(code: Errors) -> None:
    async def job(producer: TransactionalProducer) -> State:
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        return producer.state

    with coordinator(1, AddPartitionsToTxn=added(code)) as broker:
        assert play(broker, job) is State.FATAL_ERROR


def test_a_commit_whose_time_was_over_is_called_again() -> None:
    """The coordinator answers the second one as the first; an abort in between could contradict it."""
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
        play(broker, job, hasty)
    assert [r.producer_epoch for r in sent(broker, "EndTxn")] == [0, 0]


# offsets ------------------------------------------------------------------------------------------


def test_offsets_say_who_commits_them() -> None:
    who = ConsumerGroupMetadata("readers", 3, "ann-1", "ann")

    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5, TopicPartition("t", 2): 6}, who)

    with coordinator(1) as broker:
        play(broker, job)
    (request,) = sent(broker, "TxnOffsetCommit")
    assert (request.group_id, request.generation_id_or_member_epoch) == ("readers", 3)
    assert (request.member_id, request.group_instance_id) == ("ann-1", "ann")
    assert [(p.partition_index, p.committed_offset) for p in request.topics[0].partitions] == [(0, 5), (2, 6)]
    assert [r.group_id for r in sent(broker, "AddOffsetsToTxn")] == ["readers"]
    assert [r.committed for r in sent(broker, "EndTxn")] == [True]


def test_only_offsets_that_were_not_taken_are_sent_again() -> None:
    async def job(producer: TransactionalProducer) -> None:
        await producer.cluster.topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5, TopicPartition("t", 1): 6}, "readers")

    answers = [committed(p1=Errors.UNKNOWN_TOPIC_OR_PARTITION), committed()]
    with coordinator(TxnOffsetCommit=answers) as broker:
        play(broker, job)
    rows = [[p.partition_index for p in r.topics[0].partitions] for r in sent(broker, "TxnOffsetCommit")]
    assert rows == [[0, 1], [1]]


def test_topics_whose_ids_are_not_known_are_named() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("elsewhere", 0): 5}, "readers")

    with coordinator() as broker:
        play(broker, job)
    assert "TxnOffsetCommit v5" in said(broker)


def test_topics_that_were_made_anew_are_named() -> None:
    async def job(producer: TransactionalProducer) -> None:
        await producer.cluster.topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TP: 5}, "readers")

    answers = [committed(p0=Errors.UNKNOWN_TOPIC_ID), committed()]
    with coordinator(TxnOffsetCommit=answers) as broker:
        play(broker, job)
    assert [line for line in said(broker) if "Commit" in line] == ["TxnOffsetCommit v6", "TxnOffsetCommit v5"]


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "TxnOffsetCommit"])
def test_where_nobody_knows_what_became_of_offsets_the_epoch_rises(api: str) -> None:
    """So that, in the first generation, what comes late does not get into the next transaction."""
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
        play(broker, job, hasty)
    assert [r.producer_epoch for r in sent(broker, "InitProducerId")] == [-1, 0]


@pytest.mark.parametrize("code", [Errors.ILLEGAL_GENERATION, Errors.STALE_MEMBER_EPOCH])
def test_a_member_that_is_out_cannot_commit_and_can_abort(code: Errors) -> None:
    async def job(producer: TransactionalProducer) -> None:
        producer.begin_transaction()
        with pytest.raises(KafkaError, match=code.name):
            await producer.send_offsets_to_transaction({TP: 5}, ConsumerGroupMetadata("readers", 3, "ann"))
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()

    with coordinator(TxnOffsetCommit=committed(p0=code)) as broker:
        play(broker, job)
    assert [r.committed for r in sent(broker, "EndTxn")] == [False]


def test_no_offsets_are_no_part_of_a_transaction() -> None:
    async def job(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, "readers")

    with coordinator() as broker:
        play(broker, job)
    assert said(broker) == ["InitProducerId v5"]
