"""The transaction coordinator in virtual time; see `konvene.sim.runtime`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from konvene.errors import Errors
from konvene.records.coordinator import decode_transaction_record, encode_transaction_record
from konvene.runtime.ports import RecordSerde
from konvene.shard.contract import Context, Outcome
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import Batch, Journal, Log, read_values
from konvene.sim.runtime import REQUEST, TIMER, ShardRuntime, SimulatedPorts
from konvene.sim.world.event import InvariantViolation
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import NO_EPOCH, Transaction

TRANSACTION_SERDE = RecordSerde(encode_transaction_record, read_values)

Transactions = Mapping[str, Transaction]
"""Transactions by transactional id."""


@dataclass(slots=True)
class Event:
    """An event of the transaction coordinator: a decision or a load, with the state before and after.

    `kind` is as in `konvene.sim.world.event.Event`."""

    kind: str
    runtime: TransactionRuntime
    before: Transactions
    after: Transactions
    request: Any = None
    """The request, the completion, or the key of the timer."""
    version: int = 0
    client_id: str = ""
    waiter: int = 0
    outcome: Outcome | None = None
    answer: Any = None
    batch: Batch | None = None
    lost: int = 0
    """Number of batches that the log lost before it was loaded."""

    @property
    def api(self) -> str:
        return type(self.request).__name__.removesuffix("Request")

    @property
    def error(self) -> Errors:
        """The error of the response: the response itself if it is an error, otherwise its top-level error
        code."""
        if isinstance(self.answer, Errors):
            return self.answer
        return Errors(getattr(self.answer, "error_code", 0))


class TransactionRuntime(ShardRuntime[Event, Transactions]):
    """A transaction coordinator in virtual time, with its log and a shadow: a shard that replays only the
    log."""

    name = "transactions"
    refuses_completions = True
    core: TransactionShard
    shadow: TransactionShard

    def __init__(
        self,
        event_queue: EventQueue,
        ports: SimulatedPorts,
        *,
        log: Log,
    ) -> None:
        self.features = ports.features()
        self.kept: Transactions = {}
        """A private copy of all transactions, as of the last event."""
        self._durable_end = 0
        """Number of batches that must be durable before the next response may leave."""
        super().__init__(
            event_queue,
            ports,
            journal=Journal(log, at_once=False, decode=decode_transaction_record),
            serde=TRANSACTION_SERDE,
            empty={},
        )

    def new_shard(self) -> TransactionShard:
        return TransactionShard()

    def current_state(self) -> Transactions:
        return dict(self.core.transactions)

    def new_event(
        self, kind: str, subject: object, context: Context, outcome: Outcome | None, refused: Errors | None
    ) -> Event:
        if self.core.transactions != self.kept:
            why = f"{self.core.transactions} was {self.kept} and changed without a record"
            self.failed(InvariantViolation("TransactionsChangeByRecords", why))
        answer: object = refused
        if outcome is not None and kind != TIMER:
            answer = dict(outcome.replies).get(context.waiter)
        return Event(
            kind, self, self.kept, {}, subject, context.api_version, context.client_id, context.waiter,
            outcome, answer,
        )  # fmt: skip

    def new_load_event(self, outcome: Outcome) -> Event:
        return Event("loaded", self, self.ended, {}, outcome=outcome, lost=self.lost)

    def reset(self) -> None:
        self._durable_end = 0

    def append_failed(self, event: Event, how: str) -> None:
        event.kind, event.outcome = how, None
        if how == "append failed":
            self.ended = self.kept

    def note_responses(self, event: Event) -> None:
        """Record up to which batch the log must be durable before the response of an event may be sent.

        The response of a decision with `when_written` does not wait for a sync, and later responses do not
        wait for its batch."""
        outcome, end = event.outcome, len(self.log.batches)
        when_written = outcome is not None and outcome.when_written
        if event.batch is not None and not when_written:
            self._durable_end = end
        if event.waiter and event.kind == REQUEST:
            self._release_positions[event.waiter] = 0 if when_written else self._durable_end, end

    def end(self, event: Event) -> None:
        self.kept = event.after = self.current_state()
        self.report(event)


def as_logged(transaction: Transaction | None, transaction_version: int) -> Transaction | None:
    """Return a transaction as a replay restores it: without the fields that are not written to the log in
    this `transaction.version`."""
    if transaction is None:
        return None
    logged = replace(transaction, last_producer_epoch=NO_EPOCH)
    if transaction_version >= 1:
        return logged
    return replace(logged, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
