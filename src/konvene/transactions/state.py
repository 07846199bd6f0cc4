"""The nouns of transactions, and their states by their answers and exits.

    state            AddPartitionsToTxn         EndTxn                     leaves for
    Empty            begins one                 INVALID_TXN_STATE (1)      Ongoing; Empty: another producer
    Ongoing          NONE                       NONE                       PrepareCommit, PrepareAbort
    PrepareCommit    CONCURRENT_TRANSACTIONS    CONCURRENT_TRANSACTIONS    CompleteCommit: all markers written
    PrepareAbort     CONCURRENT_TRANSACTIONS    CONCURRENT_TRANSACTIONS    CompleteAbort: all markers written
    CompleteCommit   begins the next one        NONE to a commit (1)       as Empty
    CompleteAbort    begins the next one        NONE to an abort (1)       as Empty
    Dead             never kept: an expired id is gone
    PrepareEpochFence  never kept: who is fenced has its transaction aborted by the same record

(1) Where every transaction has an epoch of its own (EndTxn 5) the epoch tells a retry from the next request,
and to abort is never wrong: see `end`.

A transactional id has one producer id and epoch at a time. `Transaction` is a value; a decision makes the
next one (`moved`), and it becomes the state by its record. The log does not tell all: a restart forgets the
producer's last epoch, as in Kafka, and with `transaction.version` 0 it has no room for the previous and the
next producer id and the client's version. `TransactionIs` carries them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self

from konvene.records.coordinator import Record, RecordOfVersion0
from konvene.records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

Partition = tuple[str, int]
"""Topic and partition."""

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
FEW: Final = 8
"""Partitions of a transaction that is like others."""

LAST_EPOCH: Final = 32767
"""No producer is ever given it, so that the coordinator can still fence the one before."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""Of a transaction in two phases that others end (KIP-939)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""The feature. From 1 on records are of version 1; from 2 on every transaction has an epoch of its own."""


class TransactionState(IntEnum):
    """As the log has them."""

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
"""No transaction is under way: the id may expire, and anything may begin."""

COMPLETE: Final = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})

BEFORE: Final = {
    EMPTY: AT_REST,
    ONGOING: AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: AT_REST | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}
"""From where a state is entered."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the coordinator knows of a transactional id."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change of anything; it differs right after a rotation only."""
    next_producer_id: int = NO_PRODUCER_ID
    """Whom the producer becomes once this transaction is complete: its epochs are used up."""
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    """The epoch before, where its owner may ask once more for the change to the present one."""
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
        """Whether the producer has no epoch left that it could be given."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_ending(self) -> bool:
        """Whether its end is decided and its markers are being written."""
        return self.state is PREPARE_COMMIT or self.state is PREPARE_ABORT

    def moved(self, state: TransactionState, **changes: Any) -> Self:
        """What follows from a change. Raises `ValueError` where no such change exists."""
        kept = changes.get
        after = type(self)(  # As `replace`, which takes twice as long.
            self.transactional_id,
            kept("producer_id", self.producer_id),
            self.producer_id,
            kept("next_producer_id", self.next_producer_id),
            kept("producer_epoch", self.producer_epoch),
            kept("last_producer_epoch", self.last_producer_epoch),
            kept("timeout_ms", self.timeout_ms),
            state,
            kept("partitions", self.partitions),
            kept("start_ms", self.start_ms),
            kept("last_update_ms", self.last_update_ms),
            kept("client_transaction_version", self.client_transaction_version),
        )
        if (
            self.state not in BEFORE[state]
            or after.producer_id < 0
            or not 0 <= after.producer_epoch <= LAST_EPOCH
        ):
            raise ValueError(f"{self!r} does not become {after!r}")
        return after


class TransactionIs(NamedTuple):
    """Never in the log: all of what was decided."""

    transaction: Transaction


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH - 1


def sorted_partitions(transaction: Transaction) -> tuple[Partition, ...]:
    return tuple(sorted(transaction.partitions))


def by_topic(partitions: Iterable[Partition]) -> list[tuple[str, tuple[int, ...]]]:
    """The partitions of each topic, sorted."""
    found = groupby(sorted(partitions), key=itemgetter(0))
    return [(topic, tuple(partition for _, partition in of_topic)) for topic, of_topic in found]


def _told(partitions: frozenset[Partition]) -> tuple[PartitionsSchema, ...]:
    """As the log has them."""
    return tuple(PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic(partitions))


_few_told = lru_cache(maxsize=4096)(_told)
"""A producer's transactions are mostly alike. Values are shared."""


def to_record(transaction: Transaction, transaction_version: int) -> Record:
    """As the log has it. An id without a transaction has null for partitions, as in Kafka."""
    partitions = None
    if transaction.state is not EMPTY:
        partitions = (_few_told if len(transaction.partitions) < FEW else _told)(transaction.partitions)
    is_told = transaction_version >= 1
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id if is_told else NO_PRODUCER_ID,
        next_producer_id=transaction.next_producer_id if is_told else NO_PRODUCER_ID,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_transaction_version if is_told else 0,
    )
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return Record(key, value) if is_told else RecordOfVersion0(key, value)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """As the log tells it. Raises `ValueError` for a state that does not exist."""
    state = STATES.get(value.transaction_status)
    if state is None:
        raise ValueError(f"{value.transaction_status} is no state of a transaction")
    told = () if state is EMPTY else value.transaction_partitions or ()
    partitions = frozenset([(topic.topic, index) for topic in told for index in topic.partition_ids])
    return Transaction(
        key.transactional_id, value.producer_id, value.previous_producer_id, value.next_producer_id,
        value.producer_epoch, NO_EPOCH, value.transaction_timeout_ms, state, partitions,
        value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )  # fmt: skip
