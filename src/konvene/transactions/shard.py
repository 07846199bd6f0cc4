"""The transaction coordinator's shard, whose log is one partition of `__transaction_state`.

Tables map each type of request, timer and record to a function. Only `replay` changes the state. A decision
takes effect as soon as it is made, and its replies wait for the fsync. So the only pending transitions are
those in the log: a prepared transaction waits for its markers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.schema import Struct
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_transactions import ListTransactionsRequest
from konvene.records.coordinator import Record
from konvene.records.transactions import TransactionLogKey, TransactionLogValue
from konvene.shard.contract import Arm, Context, Disarm, Outcome, TimerKey
from konvene.transactions import init_producer_id
from konvene.transactions.end_txn import FIRST_WITH_EPOCH_BUMP, end_txn, marker_effect, markers_written
from konvene.transactions.expiry import (
    EXPIRED,
    TIMED_OUT,
    abort_timed_out,
    delete_expired,
    next_check,
    producer_id_fetched,
)
from konvene.transactions.markers import MarkersWritten, ProducerIdFetched
from konvene.transactions.partitions import add_offsets, add_partitions
from konvene.transactions.state import ONGOING, Transaction, TransactionSnapshot, from_record
from konvene.transactions.views import describe, list_transactions


class TransactionShard:
    """The state of all transactional ids whose records are in one partition of the log."""

    __slots__ = ("ignored_records", "transactions")

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.ignored_records = 0
        """Number of replayed records of an unknown type."""

    def __repr__(self) -> str:
        return f"<transaction shard: {len(self.transactions)} transactional ids>"

    def handle(self, request: Struct, context: Context) -> Outcome:
        """Return the records, replies and effects of a request or event.

        Raises `TransactionError` if it is rejected without a response of its own; nothing has changed
        then."""
        return HANDLERS[type(request)](self, request, context)

    def expire(self, key: TimerKey, context: Context) -> Outcome:
        """Return the outcome of an expired timer."""
        return TIMERS[key](self, context)

    def replay(self, record: Record | TransactionSnapshot) -> None:
        """Apply a record, durable or soft, to the state."""
        apply = REPLAYS.get(type(record.key) if isinstance(record, Record) else type(record))
        if apply is None:
            self.ignored_records += 1
        else:
            apply(self, record)

    def load(self, context: Context) -> Outcome:
        """Start the timers, and request the markers of prepared transactions."""
        effects = tuple(marker_effect(t) for t in self.transactions.values() if t.is_ending)
        return Outcome(timers=(next_check(TIMED_OUT, context), next_check(EXPIRED, context)), effects=effects)

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Return None: no request is repeated unchanged."""
        return None

    def is_current(self, value: object) -> bool:
        """Return False: no value is cacheable."""
        return False

    def is_enlisted(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int
    ) -> bool:
        """Return True if this producer, at this epoch, has an ongoing transaction with that partition."""
        transaction = self.transactions.get(transactional_id)
        return (
            transaction is not None
            and transaction.state is ONGOING
            and transaction.producer_id == producer_id
            and transaction.producer_epoch == epoch
            and (topic, partition) in transaction.partitions
        )

    def needs_producer_id(self, request: Struct, api_version: int) -> bool:
        """Return True if handling the request can need an unused producer id (`Context.fresh_producer_id`).

        Without one, such a request is answered with CONCURRENT_TRANSACTIONS, and the client retries."""
        needs = NEEDS_PRODUCER_ID.get(type(request))
        return needs is not None and needs(self, request, api_version)


def _ends_last_epoch(shard: TransactionShard, request: EndTxnRequest, api_version: int) -> bool:
    transaction = shard.transactions.get(request.transactional_id)
    return api_version >= FIRST_WITH_EPOCH_BUMP and transaction is not None and transaction.is_exhausted


NEEDS_PRODUCER_ID: dict[type, Callable[[TransactionShard, Any, int], bool]] = {
    InitProducerIdRequest: lambda shard, request, version: init_producer_id.needs_producer_id(shard, request),
    EndTxnRequest: _ends_last_epoch,
}

HANDLERS: dict[type, Callable[[TransactionShard, Any, Context], Outcome]] = {
    InitProducerIdRequest: init_producer_id.init_producer_id,
    AddPartitionsToTxnRequest: add_partitions,
    AddOffsetsToTxnRequest: add_offsets,
    EndTxnRequest: end_txn,
    MarkersWritten: markers_written,
    ProducerIdFetched: producer_id_fetched,
    DescribeTransactionsRequest: describe,
    ListTransactionsRequest: list_transactions,
}

TIMERS: dict[TimerKey, Callable[[TransactionShard, Context], Outcome]] = {
    TIMED_OUT: abort_timed_out,
    EXPIRED: delete_expired,
}


# --- records -------------------------------------------------------------------------------------


def _transaction(shard: TransactionShard, record: Record) -> None:
    key, value = record
    assert isinstance(key, TransactionLogKey)
    if isinstance(value, TransactionLogValue):
        shard.transactions[key.transactional_id] = from_record(key, value)
    else:
        shard.transactions.pop(key.transactional_id, None)


def _snapshot(shard: TransactionShard, record: TransactionSnapshot) -> None:
    shard.transactions[record.transaction.transactional_id] = record.transaction


REPLAYS: dict[type, Callable[[TransactionShard, Any], None]] = {
    TransactionLogKey: _transaction,
    TransactionSnapshot: _snapshot,
}
