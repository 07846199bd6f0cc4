"""Where a transactional producer stands: its state, its id and epoch, its sequences, and what an error means.

Pure: `transactional_producer` asks the cluster and tells this what came of it. The states and their exits are
Kafka's client's. An error either can be got over by aborting (ABORTABLE_ERROR) or cannot (FATAL_ERROR): then
the id belongs to somebody else, or nobody can know any more what stands in the log.

Two generations of the protocol are spoken. In the first the client adds each partition to the transaction
before it writes to it, and the epoch stays. In the second (`transaction.version` 2) the broker adds it, and
the answer to EndTxn brings the epoch of the next transaction; a late request of the last one is then told by
its epoch. Where the first is spoken and a record's fate is unknown, the client must ask for the next epoch
itself (`bump`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from konvene.client.errors import (
    ClientError,
    KafkaError,
    OutOfTurn,
    ProducerFenced,
    TransactionFailed,
    UnsupportedVersion,
)
from konvene.client.net.cluster import TopicPartition
from konvene.errors import Errors

__all__ = ["FEATURE", "SERVER_SIDE", "ProducerIdentity", "State", "TransactionState"]

FEATURE = "transaction.version"
SERVER_SIDE = 2
"""The level of the feature from which on the broker adds partitions and raises the epoch."""

_LAST_SEQUENCE = 0x7FFF_FFFF


class State(StrEnum):
    UNINITIALIZED = "UNINITIALIZED"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING = "COMMITTING_TRANSACTION"
    ABORTING = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


EXITS: Mapping[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.READY}),
    State.READY: frozenset({State.IN_TRANSACTION}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.ABORTING: frozenset({State.READY}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING}),
    State.FATAL_ERROR: frozenset(),
}
"""Where each state leads; FATAL_ERROR can follow any of them and is left by none."""

CALLS: Mapping[str, frozenset[State]] = {
    "init_transactions": frozenset({State.UNINITIALIZED}),
    "begin_transaction": frozenset({State.READY}),
    "send": frozenset({State.IN_TRANSACTION}),
    "send_offsets_to_transaction": frozenset({State.IN_TRANSACTION}),
    "commit_transaction": frozenset({State.IN_TRANSACTION, State.COMMITTING}),
    "abort_transaction": frozenset({State.IN_TRANSACTION, State.ABORTING, State.ABORTABLE_ERROR}),
}
"""In which states each call may come. A commit or abort whose time was over is called again."""

_FENCED = frozenset({Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH})
"""A coordinator of old says the second and means the first."""

_FATAL = frozenset(
    {
        Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_ID_MAPPING,
    }
)  # fmt: skip

_ABORTABLE = frozenset(
    {
        Errors.TRANSACTION_ABORTABLE, Errors.UNKNOWN_PRODUCER_ID, Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.FENCED_INSTANCE_ID, Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION,
        Errors.GROUP_ID_NOT_FOUND, Errors.STALE_MEMBER_EPOCH,
    }
)  # fmt: skip
"""Answers of coordinators after which the transaction can be aborted; other final ones are fatal."""


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch; -1, -1 before there is one."""

    producer_id: int = -1
    epoch: int = -1


class TransactionState:
    """The state of one transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.producer = ProducerIdentity()
        self.version = 0
        """The level of `transaction.version` that is spoken in this transaction."""
        self.error: ClientError | None = None
        self.bump = False
        """Whether the client must ask for the next epoch when this transaction is over."""
        self.started = False
        """Whether the coordinator may know of the transaction, so that it has to be ended there."""
        self.enlisted: set[TopicPartition] = set()
        """The partitions that the coordinator was told of (only the first generation tells)."""
        self._sequences: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        producer_id, epoch = self.producer
        return f"<{self.transactional_id} {self.state}, producer {producer_id}, epoch {epoch}>"

    @property
    def adds_partitions(self) -> bool:
        """Whether this client adds partitions to the transaction, rather than the broker."""
        return self.version < SERVER_SIDE

    # what is called

    def call(self, name: str) -> None:
        """Raises where a call may not come now: the fatal error, `TransactionFailed`, or `OutOfTurn`."""
        if self.state in CALLS[name]:
            return
        if self.state is State.FATAL_ERROR and self.error is not None:
            raise self.error
        self.raise_failed()
        raise OutOfTurn(f"{name} of {self.transactional_id}: the producer is {self.state}")

    def raise_failed(self) -> None:
        """Raises `TransactionFailed` where the transaction can only be aborted, and a fatal error as it
        is."""
        if self.state is State.FATAL_ERROR and self.error is not None:
            raise self.error
        if self.state is State.ABORTABLE_ERROR:
            raise TransactionFailed(
                f"the transaction of {self.transactional_id} can only be aborted: {self.error}"
            ) from self.error

    def move(self, state: State) -> None:
        assert state in EXITS[self.state] or state is self.state, f"{self.state} to {state}"
        self.state = state

    # what came of it

    def identified(self, producer: ProducerIdentity) -> None:
        """The coordinator gave an id and epoch; sequences begin anew under another one."""
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    def speaks(self, version: int) -> None:
        """The next transaction speaks this level. Whoever comes to the second generation needs a new
        epoch."""
        if self.adds_partitions and version >= SERVER_SIDE and self.state is not State.UNINITIALIZED:
            self.bump = True
        self.version = version

    def ended(self) -> None:
        """The transaction is over, and nothing of it is left."""
        self.move(State.READY)
        self.error = None
        self.started = self.bump = False
        self.enlisted.clear()

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        self.enlisted.update(partitions)
        self.started = True

    def next_sequence(self, tp: TopicPartition) -> int:
        return self._sequences.get(tp, 0)

    def written(self, tp: TopicPartition, count: int) -> None:
        """So many records were acknowledged; sequences begin at 0 again after the largest number."""
        self._sequences[tp] = (self.next_sequence(tp) + count) & _LAST_SEQUENCE

    # errors

    def lost(self, error: ClientError) -> None:
        """Records could not be written. Whether they will yet be is not known: the epoch must rise."""
        self._fail(error, is_fatal=_is_fatal(error, _FATAL))
        self.bump = self.bump or (self.adds_partitions and self.state is not State.FATAL_ERROR)

    def refused(self, error: ClientError, *, abortable: bool | None = None) -> ClientError:
        """A coordinator refused, or did not answer in time; gives the error that the caller is told.

        `abortable`: known beforehand. Where its fate is not known, the first generation needs another epoch,
        so that what comes late does not get into the next transaction."""
        if isinstance(error, KafkaError) and error.code in _FENCED:
            error = ProducerFenced(Errors.PRODUCER_FENCED, error.message, about=error.about)
        code = error.code if isinstance(error, KafkaError) else None
        if abortable is None:
            abortable = error.retriable or code in _ABORTABLE
        if self.adds_partitions and (error.retriable or code == Errors.UNKNOWN_PRODUCER_ID):
            self.bump = True
        self._fail(error, is_fatal=not abortable or _is_fatal(error, _FATAL))
        return error

    def _fail(self, error: ClientError, *, is_fatal: bool) -> None:
        if self.state is State.FATAL_ERROR:
            return
        if is_fatal:
            self.state, self.error = State.FATAL_ERROR, error
        elif State.ABORTABLE_ERROR in EXITS[self.state]:
            self.state, self.error = State.ABORTABLE_ERROR, error


def _is_fatal(error: ClientError, codes: frozenset[Errors]) -> bool:
    return isinstance(error, UnsupportedVersion) or (isinstance(error, KafkaError) and error.code in codes)
