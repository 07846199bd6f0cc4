"""Kafka's transaction log is loaded, encoded to the same bytes, and reproduced from the implied requests.

`vectors/logs/transactions` is the log that Apache Kafka 4.4.0 wrote for three transactional ids. Each record
implies the request that caused it and its time; for the same requests in the same order the shard writes the
same records.
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

LOGS = Path(__file__).parents[1] / "vectors" / "logs" / "transactions"
PARTITIONS = sorted(partition.name for partition in LOGS.glob("__transaction_state-*"))

Pair = tuple[bytes, bytes | None]


def pairs(partition: str) -> list[Pair]:
    found: list[Pair] = []
    for file in sorted((LOGS / partition).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            assert not header.is_control
            for record in rb.records(batch, header):
                assert record.key is not None
                found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
    return found


def decoded(pair: Pair) -> Transaction:
    record = decode_transaction_record(*pair)
    assert type(record) is Record
    return from_record(record.key, record.value)  # type: ignore[arg-type]


def test_loaded_states_equal_kafkas_decoding() -> None:
    """The shard has the fields of the last record of each transactional id."""
    shard = TransactionShard()
    for partition in PARTITIONS:
        for pair in pairs(partition):
            shard.replay(decode_transaction_record(*pair))
    last = {}
    with (LOGS / "expected.jsonl").open(encoding="utf-8") as lines:
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


@pytest.mark.parametrize("partition", PARTITIONS)
def test_records_encode_to_the_same_bytes(partition: str) -> None:
    for pair in pairs(partition):
        assert encode_transaction_record(to_record(decoded(pair), 1)) == pair


@pytest.mark.parametrize("partition", PARTITIONS)
def test_replayed_requests_write_the_same_records(partition: str) -> None:
    log = pairs(partition)
    harness = TransactionHarness()
    for pair in log:
        written = decoded(pair)
        harness.now_ms = written.last_update_ms
        send_request_for(harness, written)
        assert harness.log[-1] == pair, written
    assert harness.log == log
    assert len(log) in (4, 35)


def send_request_for(harness: TransactionHarness, written: Transaction) -> None:
    """Send the request that takes a transaction to the state that Kafka wrote."""
    name = written.transactional_id
    known = harness.shard.transactions.get(name)
    if written.state is EMPTY:
        harness.next_id = written.producer_id
        response = harness.init(transactional_id=name, transaction_timeout_ms=written.timeout_ms)
        assert response == (written.producer_id, written.producer_epoch)
        return
    assert known is not None
    producer = known.producer_id, known.producer_epoch
    if written.state is ONGOING:
        harness.add(producer, sorted(written.partitions - known.partitions), name=name)
    elif written.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        harness.inform(MarkersWritten(name, *producer))
    elif name == "tx-slow":
        harness.expire(("timed-out",))
    else:
        harness.end(producer, written.state is PREPARE_COMMIT, name=name)
