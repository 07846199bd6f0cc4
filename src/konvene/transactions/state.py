"""The state of a transaction and its log record.

Each state, the error code with which it answers requests, and the states that may follow:

    state            AddPartitionsToTxn         EndTxn                     leaves for
    Empty            starts one                 INVALID_TXN_STATE (1)      Ongoing; Empty: another producer
    Ongoing          NONE                       NONE                       PrepareCommit, PrepareAbort
    PrepareCommit    CONCURRENT_TRANSACTIONS    CONCURRENT_TRANSACTIONS    CompleteCommit: all markers written
    PrepareAbort     CONCURRENT_TRANSACTIONS    CONCURRENT_TRANSACTIONS    CompleteAbort: all markers written
    CompleteCommit   starts the next one        NONE to a commit (1)       as Empty
    CompleteAbort    starts the next one        NONE to an abort (1)       as Empty
    Dead             never stored: an expired id is deleted
    PrepareEpochFence  never stored: the record that fences a producer aborts its transaction as well

(1) With EndTxn 5, where each transaction has its own epoch, the epoch distinguishes a retry from the next
request, and an abort is always allowed: see `end_txn`.

A transactional id has one producer id and epoch at a time. `Transaction` is a value; a decision makes the
next one (`moved`), which becomes the state by its record. The log lacks some fields: the producer's last
epoch is lost by a restart, as in Kafka, and with `transaction.version` 0 the previous and next producer id
and the client's version are as well. The soft record `TransactionSnapshot` carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, Self, TypedDict, Unpack

from konvene.records.coordinator import Record, RecordOfVersion0
from konvene.records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

Partition = tuple[str, int]
"""Topic and partition."""

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_CACHED_PARTITIONS: Final = 8
"""Records of transactions with fewer partitions share their encoded partitions."""

LAST_EPOCH: Final = 32767
"""Never assigned to a producer, so that the coordinator can still fence the one before."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a two-phase transaction, which an external coordinator ends (KIP-939)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Name of the feature. Level 1: records have version 1; level 2: each transaction has its own epoch."""


class TransactionState(IntEnum):
    """The states of a transaction, numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """Kafka's name, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

BY_NAME: Final = {state.shown: state for state in TransactionState}
STATES: Final = {state.value: state for state in TransactionState}

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""States without an open transaction: the id may expire, and a transaction or producer may start."""

COMPLETE: Final = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})

PREDECESSORS: Final = {
    EMPTY: AT_REST,
    ONGOING: AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: AT_REST | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}
"""For each state, the states from which it may be entered."""


class Changes(TypedDict, total=False):
    """Keyword arguments of `Transaction.moved`: the fields that may change together with the state."""

    producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: frozenset[Partition]
    start_ms: int
    last_update_ms: int
    client_transaction_version: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id, as an immutable value."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change of state; another one only right after a rotation."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that follows this transaction if the epochs of the current one are exhausted."""
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the current one; its owner may retry the request that changed it."""
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: frozenset[Partition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    client_transaction_version: int = 0

    def __repr__(self) -> str:
        return (
            f"<transaction {self.transactional_id!r}: {self.state.shown}, producer {self.producer_id}"
            f" epoch {self.producer_epoch}, {len(self.partitions)} partitions>"
        )

    @property
    def is_exhausted(self) -> bool:
        """True if no epoch is left to assign to a producer: the next one needs a new producer id."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_ending(self) -> bool:
        """True if the transaction is prepared: its end is decided and its markers are being written."""
        return self.state is PREPARE_COMMIT or self.state is PREPARE_ABORT

    def moved(self, state: TransactionState, **changes: Unpack[Changes]) -> Self:
        """Return a copy in another state. Raises `ValueError` if that transition is not allowed."""
        changed_transaction = type(self)(  # Like `replace`, which takes twice as long.
            self.transactional_id,
            changes.get("producer_id", self.producer_id),
            self.producer_id,
            changes.get("next_producer_id", self.next_producer_id),
            changes.get("producer_epoch", self.producer_epoch),
            changes.get("last_producer_epoch", self.last_producer_epoch),
            changes.get("timeout_ms", self.timeout_ms),
            state,
            changes.get("partitions", self.partitions),
            changes.get("start_ms", self.start_ms),
            changes.get("last_update_ms", self.last_update_ms),
            changes.get("client_transaction_version", self.client_transaction_version),
        )
        if (
            self.state not in PREDECESSORS[state]
            or changed_transaction.producer_id < 0
            or not 0 <= changed_transaction.producer_epoch <= LAST_EPOCH
        ):
            raise ValueError(f"{self!r} cannot become {changed_transaction!r}")
        return changed_transaction


class TransactionSnapshot(NamedTuple):
    """A soft record, which is never written to the log: the whole transaction."""

    transaction: Transaction


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH - 1


def sorted_partitions(transaction: Transaction) -> tuple[Partition, ...]:
    return tuple(sorted(transaction.partitions))


def by_topic(partitions: Iterable[Partition]) -> list[tuple[str, tuple[int, ...]]]:
    """Group partitions by topic: return pairs of a topic and its partition numbers, both sorted."""
    found = groupby(sorted(partitions), key=itemgetter(0))
    return [(topic, tuple(partition for _, partition in of_topic)) for topic, of_topic in found]


def _schema(partitions: frozenset[Partition]) -> tuple[PartitionsSchema, ...]:
    """Return the partitions as structs of the log record, one for each topic."""
    return tuple(PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic(partitions))


_cached_schema = lru_cache(maxsize=4096)(_schema)
"""A producer's transactions mostly have the same partitions, so equal values are shared."""


def to_record(transaction: Transaction, transaction_version: int) -> Record:
    """Return the log record of a transaction. Its partitions are null in the state Empty, as in Kafka."""
    partitions = None
    if transaction.state is not EMPTY:
        partitions = (_cached_schema if len(transaction.partitions) < MAX_CACHED_PARTITIONS else _schema)(
            transaction.partitions
        )
    has_all_fields = transaction_version >= 1
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id if has_all_fields else NO_PRODUCER_ID,
        next_producer_id=transaction.next_producer_id if has_all_fields else NO_PRODUCER_ID,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_transaction_version if has_all_fields else 0,
    )
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return Record(key, value) if has_all_fields else RecordOfVersion0(key, value)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """Return the transaction that a log record describes. Raises `ValueError` for an unknown state."""
    state = STATES.get(value.transaction_status)
    if state is None:
        raise ValueError(f"unknown transaction status {value.transaction_status}")
    topics = () if state is EMPTY else value.transaction_partitions or ()
    partitions = frozenset([(topic.topic, index) for topic in topics for index in topic.partition_ids])
    return Transaction(
        key.transactional_id, value.producer_id, value.previous_producer_id, value.next_producer_id,
        value.producer_epoch, NO_EPOCH, value.transaction_timeout_ms, state, partitions,
        value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )  # fmt: skip
