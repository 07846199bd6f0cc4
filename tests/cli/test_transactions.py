"""`konvene transactions`, and what transactions are to `produce` and `consume`, with a broker that serves
them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.commands import Serving, call, serving

from konvene.client.errors import ProducerFenced
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.producer.transactional import TransactionalProducer

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One that believes producers who say that their coordinator knows of their transaction."""
    few = {
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "2",
    }
    with serving(tmp_path_factory.mktemp("data"), few) as broker:
        yield broker


def open_one(broker: Serving, topic: str, transactional_id: str, *, told: bool = True) -> None:
    """A transaction with an old record in partition 0, whose producer falls silent. `told`: the coordinator
    knows of it."""

    async def job() -> None:
        async with Cluster(broker.address) as cluster:
            producer = TransactionalProducer(
                cluster, transactional_id, transaction_version=2 if told else 1,
                clock_ms=lambda: time.time_ns() // 1_000_000 - HOUR_MS,
            )  # fmt: skip
            await producer.init_transactions()
            producer.begin_transaction()
            if not told:
                producer._transaction.enlisted.add(TopicPartition(topic, 0))
            await (await producer.send(topic, b"open", partition=0))

    broker.run(job())


def read(broker: Serving, topic: str, *words: str) -> list[str]:
    where = words or ("--from-beginning",)
    return call(broker, "consume", "--topic", topic, *where, "--timeout-ms", "300").out.split()


COMMITTED = ("--isolation-level", "read_committed", "--from-beginning")


# looking ------------------------------------------------------------------------------------------


def test_transactions_are_listed_and_described(broker: Serving) -> None:
    broker.create("looked-at", 0, 0)
    open_one(broker, "looked-at", "looked-1")
    call(broker, "produce", "--topic", "looked-at", "--transactional-id", "looked-2", stdin="a\n")
    words = ("transactions", "list", "--transactional-id-pattern", "looked-.*")
    (head, one, two) = call(broker, *words).lines
    assert head == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert (one[:2], one[3]) == (["looked-1", "1"], "Ongoing")
    assert two[0] == "looked-2"
    (row,) = call(broker, *words, "--state", "ongoing", "--json").json
    assert row == {
        "transactional_id": "looked-1", "coordinator_id": 1, "producer_id": int(one[2]), "state": "Ongoing"
    }  # fmt: skip
    assert call(broker, *words, "--duration-filter", str(HOUR_MS), "--state", "Ongoing", "--json").json == []

    head, row = call(broker, "transactions", "describe", "looked-1").lines
    assert head == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    assert [row[i] for i in (0, 1, 2, 3, 4, 5, 8)] == [
        "1", "looked-1", one[2], "0", "Ongoing", "60000", "looked-at-0"
    ]  # fmt: skip
    told = call(broker, "transactions", "describe", "--transactional-id", "looked-1", "--json").json
    assert told["partitions"] == [{"topic": "looked-at", "partition": 0}]
    assert 0 <= told["duration_ms"] < 60_000


def test_an_id_that_nobody_knows(broker: Serving) -> None:
    assert call(broker, "transactions", "describe", "nobody") == (
        1,
        "",
        "konvene: transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND\n"
        "  `konvene transactions list` shows the existing transactional ids.\n",
    )


def test_an_expression_that_is_none_is_told(broker: Serving) -> None:
    said = call(broker, "transactions", "list", "--transactional-id-pattern", "(")
    assert (said.code, said.out) == (1, "")
    assert "INVALID_REGULAR_EXPRESSION" in said.err


def test_producers_of_a_partition(broker: Serving) -> None:
    broker.create("written-to", 0, 0)
    open_one(broker, "written-to", "writer")
    words = ("transactions", "describe-producers", "--topic", "written-to", "--partition")
    head, row = call(broker, *words, "0").lines
    assert head == [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    assert (row[1:4], row[5]) == (["0", "-1", "0"], "0")
    (same,) = call(broker, *words, "0", "--broker-id", "1", "--json").json
    assert (same["producer_id"], same["transaction_start_offset"]) == (int(row[0]), 0)
    assert len(call(broker, *words, "1").lines) == 1
    assert call(broker, *words, "2").code == 1
    said = call(broker, *words, "0", "--broker-id", "9")
    assert (said.code, said.err) == (1, "konvene: there is no broker with id 9\n")


# transactions that hang ---------------------------------------------------------------------------


def find(broker: Serving, *words: str) -> Any:
    return call(broker, "transactions", "find-hanging", *words, "--json").json


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(broker: Serving) -> None:
    """What stands behind it is read then; the transaction that goes on stays."""
    broker.create("stuck", 0, 0)
    open_one(broker, "stuck", "forgotten", told=False)
    call(broker, "produce", "--topic", "stuck", "--partition", "0", stdin="behind\n")
    open_one(broker, "stuck", "going-on")
    assert read(broker, "stuck", *COMMITTED) == []

    said = call(broker, "transactions", "find-hanging", "--topic", "stuck")
    head, row = said.lines
    assert head == [
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
        "LastTimestamp", "Duration(min)",
    ]  # fmt: skip
    assert (row[:2], row[3:6], row[7]) == (["stuck", "0"], ["0", "-1", "0"], "60")
    assert "`konvene transactions abort --topic NAME" in said.err
    (same,) = find(broker, "--broker-id", "1", "--topic", "stuck")
    assert (same["partition"], same["transaction_start_offset"]) == (0, 0)
    assert same["duration_ms"] >= HOUR_MS
    assert find(broker, "--topic", "stuck", "--partition", "1") == []
    assert find(broker, "--topic", "stuck", "--max-transaction-timeout", "61") == []
    assert same in [each | {"duration_ms": same["duration_ms"]} for each in find(broker, "--broker-id", "1")]

    words = ("transactions", "abort", "--topic", "stuck", "--partition", "0", "--start-offset")
    said = call(broker, *words, "1")
    assert said.code == 1
    assert said.err == (
        "konvene: no open transaction begins at offset 1 of stuck-0\n  Open ones begin at 0, 2.\n"
    )
    said = call(broker, *words, "0")
    assert said.out == f"Aborted the transaction of producer {row[2]} (epoch 0) in stuck-0.\n"
    assert find(broker, "--topic", "stuck") == []
    assert read(broker, "stuck", *COMMITTED) == ["behind"]
    assert call(broker, "transactions", "describe", "going-on", "--json").json["state"] == "Ongoing"


def test_a_transaction_is_ended_by_all_that_its_marker_says(broker: Serving) -> None:
    broker.create("older", 0)
    open_one(broker, "older", "older-1", told=False)
    (found,) = find(broker, "--topic", "older")
    given = ("--producer-id", str(found["producer_id"]), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    said = call(broker, "transactions", "abort", "--topic", "older", "--partition", "0", *given, "--json")
    assert said.json == {
        "topic": "older", "partition": 0, "producer_id": found["producer_id"], "producer_epoch": 0,
        "coordinator_epoch": 0,
    }  # fmt: skip
    assert find(broker, "--topic", "older") == []


@pytest.mark.parametrize(
    "words",
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
def test_what_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    assert call(None, "transactions", *words).code == 2


def test_a_producer_is_made_to_end(broker: Serving) -> None:
    """Under our name of the command and under Kafka's. Whoever had the id can do nothing any more."""

    async def commit(told: tuple[str, ...]) -> None:
        async with Cluster(broker.address) as cluster:
            producer = TransactionalProducer(cluster, "runaway")
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("ended", b"x"))
            said = await asyncio.to_thread(call, broker, "transactions", *told)
            assert said.code == 0, said.err
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()

    broker.create("ended", 0)
    broker.run(commit(("force-terminate", "runaway")))
    broker.run(commit(("forceTerminateTransaction", "--transactionalId", "runaway", "--json")))
    assert read(broker, "ended", *COMMITTED) == []
    assert "forceTerminate" not in call(None, "transactions", "--help").out


# produce and consume ------------------------------------------------------------------------------


def test_lines_appear_together_or_not_at_all(broker: Serving) -> None:
    broker.create("whole", 0, 0, 0)
    words = ("produce", "--topic", "whole", "--transactional-id", "lines", "--key-separator", "=")
    said = call(broker, *words, "--json", stdin="a=1\nb=2\nc=3\n")
    assert said.json["records"] == 3
    said = call(broker, *words, stdin="a=4\nb=5\nno key\n")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("konvene: line 3: ")
    assert "0 lines before it were written" in said.err
    assert sorted(read(broker, "whole", *COMMITTED)) == ["1", "2", "3"]
    assert set(read(broker, "whole")) >= {"1", "2", "3", "4", "5"}
    assert call(broker, *words, "--acks", "1", stdin="").code == 2
