"""State machine of a transactional producer: state, producer id and epoch, sequences, and the effect of
errors.

It is pure; `TransactionalProducer` sends the requests and passes the results. States and transitions are
those of Kafka's client. An error can be resolved by an abort (ABORTABLE_ERROR) or not (FATAL_ERROR): another
producer uses the id then, or the content of the log is unknown.

There are two generations of the protocol. In the first, the client adds each partition to the transaction
before it writes to it, and the epoch stays. In the second (`transaction.version` 2), the broker adds
partitions, and the EndTxn response has the epoch of the next transaction, which fences late requests of the
previous one. With the first generation the client must request the next epoch itself (`bump`) if the fate of
a record is unknown."""

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
"""Feature level from which the broker adds partitions and bumps the epoch."""

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
"""Allowed transitions. FATAL_ERROR can follow any state and is final."""

CALLS: Mapping[str, frozenset[State]] = {
    "init_transactions": frozenset({State.UNINITIALIZED}),
    "begin_transaction": frozenset({State.READY}),
    "send": frozenset({State.IN_TRANSACTION}),
    "send_offsets_to_transaction": frozenset({State.IN_TRANSACTION}),
    "commit_transaction": frozenset({State.IN_TRANSACTION, State.COMMITTING}),
    "abort_transaction": frozenset({State.IN_TRANSACTION, State.ABORTING, State.ABORTABLE_ERROR}),
}
"""States in which each call is allowed. A commit or abort that timed out may be repeated."""

_FENCED = frozenset({Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH})
"""Older coordinators return the second code instead of the first."""

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
"""Coordinator errors after which the transaction can be aborted; other final errors are fatal."""


class ProducerIdentity(NamedTuple):
    """A producer id and epoch; -1, -1 before the first one."""

    producer_id: int = -1
    epoch: int = -1


class TransactionState:
    """State machine of one transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.producer = ProducerIdentity()
        self.version = 0
        """The `transaction.version` level of this transaction."""
        self.error: ClientError | None = None
        self.bump = False
        """Whether the client must request a new epoch after this transaction."""
        self.started = False
        """Whether the coordinator may have the transaction open, so that it must be ended there."""
        self.enlisted: set[TopicPartition] = set()
        """Partitions that were added to the transaction (first generation only)."""
        self._sequences: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        producer_id, epoch = self.producer
        return f"<{self.transactional_id} {self.state}, producer {producer_id}, epoch {epoch}>"

    @property
    def adds_partitions(self) -> bool:
        """Whether the client, not the broker, adds partitions to the transaction."""
        return self.version < SERVER_SIDE

    # what is called

    def call(self, name: str) -> None:
        """Check that the method `name` may be called in the current state (`CALLS`).

        Raises the fatal error if there is one, `TransactionFailed` if only an abort is left, else
        `OutOfTurn`."""
        if self.state in CALLS[name]:
            return
        if self.state is State.FATAL_ERROR and self.error is not None:
            raise self.error
        self.raise_failed()
        raise OutOfTurn(f"{name} of {self.transactional_id}: the producer is {self.state}")

    def raise_failed(self) -> None:
        """Raise the fatal error, or `TransactionFailed` if the transaction can only be aborted."""
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

    def set_identity(self, producer: ProducerIdentity) -> None:
        """Set the producer id and epoch; a different id or epoch resets all sequences."""
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    def set_version(self, version: int) -> None:
        """Set the `transaction.version` level of the next transaction.

        A change to the second generation needs a new epoch."""
        if self.adds_partitions and version >= SERVER_SIDE and self.state is not State.UNINITIALIZED:
            self.bump = True
        self.version = version

    def reset(self) -> None:
        """Reset the state after the end of the transaction."""
        self.move(State.READY)
        self.error = None
        self.started = self.bump = False
        self.enlisted.clear()

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self.enlisted.update(partitions)
        self.started = True

    def next_sequence(self, tp: TopicPartition) -> int:
        return self._sequences.get(tp, 0)

    def advance_sequence(self, tp: TopicPartition, count: int) -> None:
        """Advance the sequence of a partition; it wraps around to 0."""
        self._sequences[tp] = (self.next_sequence(tp) + count) & _LAST_SEQUENCE

    # errors

    def handle_lost_records(self, error: ClientError) -> None:
        """Update the state after a batch failed, which may or may not be in the log: the epoch must be
        bumped."""
        self._fail(error, is_fatal=_is_fatal(error, _FATAL))
        self.bump = self.bump or (self.adds_partitions and self.state is not State.FATAL_ERROR)

    def handle_error(self, error: ClientError, *, abortable: bool | None = None) -> ClientError:
        """Update the state after an error or timeout of a coordinator; return the error to raise.

        `abortable` is whether an abort resolves it; None: the error code decides. After a timeout the epoch
        must be bumped, so that the late request does not join the next transaction."""
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
