"""Kafka's own log of transactions: it is loaded, and decided again to the last byte.

`vectors/logs/transactions` is what Apache Kafka 4.4.0 left of three transactional ids. Each record says what
was asked and when; asked the same in the same order, the shard writes the same records.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.transactions.harness import TransactionHarness

from konvene.codec import batches as rb
from konvene.records.coordinator import Record, decode_transaction_record, encode_transaction_record
from konvene.transactions.markers import MarkersWritten
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    from_record,
    to_record,
)

STORY = Path(__file__).parents[1] / "vectors" / "logs" / "transactions"
PLACES = sorted(place.name for place in STORY.glob("__transaction_state-*"))

Pair = tuple[bytes, bytes | None]


def pairs(place: str) -> list[Pair]:
    found: list[Pair] = []
    for file in sorted((STORY / place).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            assert not header.is_control
            for record in rb.records(batch, header):
                assert record.key is not None
                found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
    return found


def told(pair: Pair) -> Transaction:
    record = decode_transaction_record(*pair)
    assert type(record) is Record
    return from_record(record.key, record.value)  # type: ignore[arg-type]


def test_the_log_is_loaded_as_kafka_decoded_it() -> None:
    """The last record of each id is what the shard has, field by field."""
    shard = TransactionShard()
    for place in PLACES:
        for pair in pairs(place):
            shard.replay(decode_transaction_record(*pair))
    last = {}
    with (STORY / "expected.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["topic"] == "__transaction_state":
                last[row["key"]["transactionalId"]] = row["value"]
    assert sorted(shard.transactions) == sorted(last) == ["tx-classic", "tx-consumer", "tx-slow"]
    for name, value in last.items():
        found = shard.transactions[name]
        assert value == {
            "producerId": found.producer_id,
            "previousProducerId": found.previous_producer_id,
            "producerEpoch": found.producer_epoch,
            "transactionTimeoutMs": found.timeout_ms,
            "transactionStatus": found.state,
            "transactionPartitions": [],
            "transactionLastUpdateTimestampMs": found.last_update_ms,
            "transactionStartTimestampMs": found.start_ms,
            "clientTransactionVersion": found.client_transaction_version,
        }
    states = {name: found.state for name, found in shard.transactions.items()}
    assert states == {
        "tx-classic": COMPLETE_COMMIT,
        "tx-consumer": COMPLETE_COMMIT,
        "tx-slow": COMPLETE_ABORT,
    }


@pytest.mark.parametrize("place", PLACES)
def test_what_is_loaded_is_written_as_it_was(place: str) -> None:
    for pair in pairs(place):
        assert encode_transaction_record(to_record(told(pair), 1)) == pair


@pytest.mark.parametrize("place", PLACES)
def test_every_record_is_decided_again(place: str) -> None:
    log = pairs(place)
    harness = TransactionHarness()
    for pair in log:
        wanted = told(pair)
        harness.now_ms = wanted.last_update_ms
        ask_for(harness, wanted)
        assert harness.log[-1] == pair, wanted
    assert harness.log == log
    assert len(log) in (4, 35)


def ask_for(harness: TransactionHarness, wanted: Transaction) -> None:
    """Ask for what brings a transaction from where it is to what Kafka wrote."""
    name = wanted.transactional_id
    known = harness.shard.transactions.get(name)
    if wanted.state is EMPTY:
        harness.next_id = wanted.producer_id
        took = harness.init(transactional_id=name, transaction_timeout_ms=wanted.timeout_ms)
        assert took == (wanted.producer_id, wanted.producer_epoch)
        return
    assert known is not None
    producer = known.producer_id, known.producer_epoch
    if wanted.state is ONGOING:
        harness.add(producer, sorted(wanted.partitions - known.partitions), name=name)
    elif wanted.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        harness.inform(MarkersWritten(name, *producer))
    elif name == "tx-slow":
        harness.expire(("timed-out",))
    else:
        harness.end(producer, wanted.state is PREPARE_COMMIT, name=name)
