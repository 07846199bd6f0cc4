"""`konvene transactions`, and transactional `produce` and `consume`, against a broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.commands import RunningBroker, call, running_broker

from konvene.client.errors import ProducerFenced
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.producer.transactional import TransactionalProducer

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker without transaction verification, so that hanging transactions can be created."""
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "2",
    }
    with running_broker(tmp_path_factory.mktemp("data"), settings) as broker:
        yield broker


def open_transaction(
    broker: RunningBroker, topic: str, transactional_id: str, *, registered: bool = True
) -> None:
    """Open a transaction with one old record in partition 0 and abandon it; without `registered` the
    transaction coordinator does not know the partition.
    """

    async def job() -> None:
        async with Cluster(broker.address) as cluster:
            producer = TransactionalProducer(
                cluster, transactional_id, transaction_version=2 if registered else 1,
                clock_ms=lambda: time.time_ns() // 1_000_000 - HOUR_MS,
            )  # fmt: skip
            await producer.init_transactions()
            producer.begin_transaction()
            if not registered:
                producer._transaction.enlisted.add(TopicPartition(topic, 0))
            await (await producer.send(topic, b"open", partition=0))

    broker.run(job())


def consume_values(broker: RunningBroker, topic: str, *args: str) -> list[str]:
    start = args or ("--from-beginning",)
    return call(broker, "consume", "--topic", topic, *start, "--timeout-ms", "300").out.split()


COMMITTED = ("--isolation-level", "read_committed", "--from-beginning")


# describing ---------------------------------------------------------------------------------------


def test_transactions_are_listed_and_described(broker: RunningBroker) -> None:
    broker.create("looked-at", 0, 0)
    open_transaction(broker, "looked-at", "looked-1")
    call(broker, "produce", "--topic", "looked-at", "--transactional-id", "looked-2", stdin="a\n")
    args = ("transactions", "list", "--transactional-id-pattern", "looked-.*")
    (heading, one, two) = call(broker, *args).lines
    assert heading == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert (one[:2], one[3]) == (["looked-1", "1"], "Ongoing")
    assert two[0] == "looked-2"
    (row,) = call(broker, *args, "--state", "ongoing", "--json").json
    assert row == {
        "transactional_id": "looked-1", "coordinator_id": 1, "producer_id": int(one[2]), "state": "Ongoing"
    }  # fmt: skip
    assert call(broker, *args, "--duration-filter", str(HOUR_MS), "--state", "Ongoing", "--json").json == []

    heading, row = call(broker, "transactions", "describe", "looked-1").lines
    assert heading == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    assert [row[i] for i in (0, 1, 2, 3, 4, 5, 8)] == [
        "1", "looked-1", one[2], "0", "Ongoing", "60000", "looked-at-0"
    ]  # fmt: skip
    output = call(broker, "transactions", "describe", "--transactional-id", "looked-1", "--json").json
    assert output["partitions"] == [{"topic": "looked-at", "partition": 0}]
    assert 0 <= output["duration_ms"] < 60_000


def test_describing_an_unknown_transactional_id_fails(broker: RunningBroker) -> None:
    assert call(broker, "transactions", "describe", "nobody") == (
        1,
        "",
        "konvene: transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND\n"
        "  `konvene transactions list` shows the existing transactional ids.\n",
    )


def test_invalid_pattern_is_reported(broker: RunningBroker) -> None:
    result = call(broker, "transactions", "list", "--transactional-id-pattern", "(")
    assert (result.code, result.out) == (1, "")
    assert "INVALID_REGULAR_EXPRESSION" in result.err


def test_producers_of_a_partition_are_described(broker: RunningBroker) -> None:
    broker.create("written-to", 0, 0)
    open_transaction(broker, "written-to", "writer")
    args = ("transactions", "describe-producers", "--topic", "written-to", "--partition")
    heading, row = call(broker, *args, "0").lines
    assert heading == [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    assert (row[1:4], row[5]) == (["0", "-1", "0"], "0")
    (same,) = call(broker, *args, "0", "--broker-id", "1", "--json").json
    assert (same["producer_id"], same["transaction_start_offset"]) == (int(row[0]), 0)
    assert len(call(broker, *args, "1").lines) == 1
    assert call(broker, *args, "2").code == 1
    result = call(broker, *args, "0", "--broker-id", "9")
    assert (result.code, result.err) == (1, "konvene: there is no broker with id 9\n")


# hanging transactions -----------------------------------------------------------------------------


def find_hanging(broker: RunningBroker, *args: str) -> Any:
    return call(broker, "transactions", "find-hanging", *args, "--json").json


def test_hanging_transaction_is_found_and_aborted(broker: RunningBroker) -> None:
    """Later records become readable; the open transaction that the coordinator knows stays open."""
    broker.create("stuck", 0, 0)
    open_transaction(broker, "stuck", "forgotten", registered=False)
    call(broker, "produce", "--topic", "stuck", "--partition", "0", stdin="behind\n")
    open_transaction(broker, "stuck", "going-on")
    assert consume_values(broker, "stuck", *COMMITTED) == []

    result = call(broker, "transactions", "find-hanging", "--topic", "stuck")
    heading, row = result.lines
    assert heading == [
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
        "LastTimestamp", "Duration(min)",
    ]  # fmt: skip
    assert (row[:2], row[3:6], row[7]) == (["stuck", "0"], ["0", "-1", "0"], "60")
    assert "`konvene transactions abort --topic NAME" in result.err
    (same,) = find_hanging(broker, "--broker-id", "1", "--topic", "stuck")
    assert (same["partition"], same["transaction_start_offset"]) == (0, 0)
    assert same["duration_ms"] >= HOUR_MS
    assert find_hanging(broker, "--topic", "stuck", "--partition", "1") == []
    assert find_hanging(broker, "--topic", "stuck", "--max-transaction-timeout", "61") == []
    assert same in [
        transaction | {"duration_ms": same["duration_ms"]}
        for transaction in find_hanging(broker, "--broker-id", "1")
    ]

    args = ("transactions", "abort", "--topic", "stuck", "--partition", "0", "--start-offset")
    result = call(broker, *args, "1")
    assert result.code == 1
    assert result.err == (
        "konvene: no open transaction begins at offset 1 of stuck-0\n  Open ones begin at 0, 2.\n"
    )
    result = call(broker, *args, "0")
    assert result.out == f"Aborted the transaction of producer {row[2]} (epoch 0) in stuck-0.\n"
    assert find_hanging(broker, "--topic", "stuck") == []
    assert consume_values(broker, "stuck", *COMMITTED) == ["behind"]
    assert call(broker, "transactions", "describe", "going-on", "--json").json["state"] == "Ongoing"


def test_transaction_is_aborted_by_producer_id_and_epochs(broker: RunningBroker) -> None:
    broker.create("older", 0)
    open_transaction(broker, "older", "older-1", registered=False)
    (hanging,) = find_hanging(broker, "--topic", "older")
    producer_args = (
        "--producer-id",
        str(hanging["producer_id"]),
        "--producer-epoch",
        "0",
        "--coordinator-epoch",
        "-1",
    )
    result = call(
        broker, "transactions", "abort", "--topic", "older", "--partition", "0", *producer_args, "--json"
    )
    assert result.json == {
        "topic": "older", "partition": 0, "producer_id": hanging["producer_id"], "producer_epoch": 0,
        "coordinator_epoch": 0,
    }  # fmt: skip
    assert find_hanging(broker, "--topic", "older") == []


@pytest.mark.parametrize(
    "args",
    [
        ("describe",),
        ("describe", "a", "--transactional-id", "b"),
        ("list", "--state", "Done"),
        ("find-hanging",),
        ("find-hanging", "--partition", "0", "--broker-id", "1"),
        ("abort", "--topic", "t", "--partition", "0"),
        ("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"),
        ("abort", "--topic", "t", "--start-offset", "1"),
        ("force-terminate",),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...]) -> None:
    assert call(None, "transactions", *args).code == 2


def test_force_terminate_fences_the_producer(broker: RunningBroker) -> None:
    """With konvene's command name and with Kafka's; the fenced producer cannot commit any more."""

    async def commit(args: tuple[str, ...]) -> None:
        async with Cluster(broker.address) as cluster:
            producer = TransactionalProducer(cluster, "runaway")
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("ended", b"x"))
            result = await asyncio.to_thread(call, broker, "transactions", *args)
            assert result.code == 0, result.err
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()

    broker.create("ended", 0)
    broker.run(commit(("force-terminate", "runaway")))
    broker.run(commit(("forceTerminateTransaction", "--transactionalId", "runaway", "--json")))
    assert consume_values(broker, "ended", *COMMITTED) == []
    assert "forceTerminate" not in call(None, "transactions", "--help").out


# produce and consume ------------------------------------------------------------------------------


def test_produced_lines_are_committed_atomically(broker: RunningBroker) -> None:
    broker.create("whole", 0, 0, 0)
    args = ("produce", "--topic", "whole", "--transactional-id", "lines", "--key-separator", "=")
    result = call(broker, *args, "--json", stdin="a=1\nb=2\nc=3\n")
    assert result.json["records"] == 3
    result = call(broker, *args, stdin="a=4\nb=5\nno key\n")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("konvene: line 3: ")
    assert "0 lines before it were written" in result.err
    assert sorted(consume_values(broker, "whole", *COMMITTED)) == ["1", "2", "3"]
    assert set(consume_values(broker, "whole")) >= {"1", "2", "3", "4", "5"}
    assert call(broker, *args, "--acks", "1", stdin="").code == 2
