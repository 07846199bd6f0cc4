"""The transactions' core at work in virtual time: the broker's coordinator on a log that is a list.

As `sim.runtime` does for groups: the coordinator is the one that serves, its core is watched, and whatever
happens to it becomes an event. The shadow is given nothing but what was decoded from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.records.coordinator import decode_transaction_record, encode_transaction_record
from konvene.runtime.coordinator import Call
from konvene.runtime.ports import Ports, RecordSerde
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import Refusal
from konvene.shard.image import Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import Batch, Journal, Log, read_values
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.process_loop import ProcessLoop, TimerReportingCoordinator
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import NO_EPOCH, Transaction

NOBODY_DECIDED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS)
"""What a coordinator answers by itself."""

Ids = Mapping[str, Transaction]


SPEECH = RecordSerde(encode_transaction_record, read_values)


@dataclass(slots=True)
class Event:
    """One thing that happened to the transactions' core. `kind` as in `sim.world.event`."""

    kind: str
    runtime: TransactionRuntime
    before: Ids
    after: Ids
    request: Any = None
    """What was asked, or told."""
    version: int = 0
    client_id: str = ""
    waiter: int = 0
    outcome: Outcome | None = None
    answer: Any = None
    batch: Batch | None = None
    lost: int = 0

    @property
    def api(self) -> str:
        return type(self.request).__name__.removesuffix("Request")

    @property
    def error(self) -> Errors:
        """Of an answer of one error."""
        if isinstance(self.answer, Errors):
            return self.answer
        return Errors(getattr(self.answer, "error_code", 0))


class _Watched:
    """A core with somebody looking over its shoulder."""

    def __init__(self, core: TransactionShard, runtime: TransactionRuntime) -> None:
        self.core = core
        self._runtime = runtime
        self.replay = core.replay
        self.cacheable = core.cacheable
        self.is_current = core.is_current

    def handle(self, request: Struct, context: Context) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        runtime.last_waiter = context.waiter
        kind = "request" if context.waiter else "completion"
        try:
            outcome = self.core.handle(request, context)
        except Refusal as refused:
            runtime.decided(kind, None, request, context, refused.error)
            raise
        except Exception as error:
            runtime.failed(error)
            raise
        answer = dict(outcome.replies).get(context.waiter)
        runtime.decided(kind, outcome, request, context, answer)
        return outcome

    def expire(self, key: Any, context: Context) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        try:
            outcome = self.core.expire(key, context)
        except Exception as error:
            runtime.failed(error)
            raise
        runtime.decided("timer", outcome, key, context, None)
        return outcome

    def load(self, context: Context) -> Outcome:
        outcome = self.core.load(context)
        self._runtime.loading(self.core, outcome)
        return outcome


class TransactionRuntime:
    """A coordinator of transactions, its log and its shadow; see `sim.runtime`."""

    def __init__(
        self,
        event_queue: EventQueue,
        config: Callable[[], Any],
        *,
        log: Log,
        topics: Callable[[], Topics],
        features: Callable[[], Mapping[str, int]],
        load_ms: Callable[[], int] = lambda: 0,
        observe: Callable[[Event], None] = lambda event: None,
        perform: Callable[[Effect], None] = lambda effect: None,
    ) -> None:
        self.log = log
        self.journal = Journal(log, at_once=False, decode=decode_transaction_record)
        self.observe = observe
        self.event_queue = event_queue
        self.config = config
        self.features = features()
        self.core = TransactionShard()
        self.shadow = TransactionShard()
        self.kept: Ids = {}
        """What there is, in a copy that nobody has."""
        self.ended: Ids = {}
        self.lost = 0
        self.disk_busy = False
        self.last_waiter = 0
        self.failure: Exception | None = None
        self._ends: dict[int, tuple[int, int]] = {}
        """Up to where the log has to be durable, and up to where written, before an answer leaves."""
        self._rests_on = 0
        """Up to where it has to be durable for whatever is decided next."""
        self._open: Event | None = None
        self._loop = ProcessLoop(
            event_queue, lambda: load_ms() if self.coordinator.state == "loading" else 0, self.finish
        )
        self.coordinator = TimerReportingCoordinator(
            "transactions",
            lambda: cast("Any", _Watched(TransactionShard(), self)),
            SPEECH,
            Ports(
                journal=cast("Any", self.journal),
                config=config,
                loop=cast("Any", self._loop),
                wall_clock_ms=event_queue.wall_clock_ms,
                topics=topics,
                features=features,
                perform=perform,
            ),
        )
        self.coordinator.fired = self.end_event

    def __repr__(self) -> str:
        return f"<transactions: {self.coordinator!r}, {self.log!r}>"

    @property
    def is_active(self) -> bool:
        return self.coordinator.state == "active"

    # --- what is done to it ---

    def load(self) -> None:
        self.coordinator.load()
        self.finish()

    def die(self) -> None:
        """The process is gone: it answers nobody, and nothing of it happens any more."""
        self.finish()
        self._loop.end()

    def last_state(self) -> Ids:
        """All that there is; where nothing was read yet, all that there was before."""
        return dict(self.core.transactions) if self.is_active else self.ended

    def ask(self, request: Struct, call: Call, answered: Callable[[Struct | Errors], None]) -> None:
        """Submit a request; `answered` is called once, now or later."""
        self.last_waiter = 0
        later = self.coordinator.submit(request, call)
        waiter = self.last_waiter
        later.listen(lambda answer: self._leaves(waiter, answer, answered))
        self.finish()

    def inform(self, news: Any) -> bool:
        """News; False where what follows from it does not fit into the log."""
        fits = self.coordinator.inform(news)
        self.finish()
        return fits

    def _leaves(
        self, waiter: int, answer: Struct | Errors, answered: Callable[[Struct | Errors], None]
    ) -> None:
        """G6: an answer leaves when all is durable that was decided before it."""
        self.end_event()
        end, written = self._ends.pop(waiter, (0, 0))
        late = end > self.log.durable or written > max(self.log.written, self.log.durable)
        if late and answer not in NOBODY_DECIDED:
            why = f"answered when {self.log.durable} batches were durable, decided behind {end}: {answer}"
            self.failed(InvariantViolation("AnswersWaitForTheDisk", why))
        answered(answer)

    @property
    def waits_for_disk(self) -> bool:
        return self.journal.sync_pause is not None

    def made_durable(self) -> None:
        self.log.durable = max(self.log.durable, self.journal.sync_end)
        self._end_sync(None)

    def sync_fails(self) -> None:
        self.finish()
        self.ended = dict(self.core.transactions)
        self._end_sync(OSError("the sync failed"))

    def _end_sync(self, error: OSError | None) -> None:
        pause, self.journal.sync_pause = self.journal.sync_pause, None
        if pause is not None:
            pause.end(error)
        self.finish()

    # --- what becomes of it ---

    def decided(
        self, kind: str, outcome: Outcome | None, request: Any, context: Context, answer: Any
    ) -> None:
        """The core decided; what follows from it is about to happen."""
        if self.core.transactions != self.kept:
            why = f"{self.core.transactions} was {self.kept} and changed without a record"
            self.failed(InvariantViolation("TransactionsChangeByRecords", why))
        self._open = Event(
            kind, self, self.kept, {}, request, context.api_version, context.client_id, context.waiter,
            outcome, answer,
        )  # fmt: skip
        self.journal.appended = self.journal.failed = self.journal.refused = None

    def failed(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error

    def finish(self) -> None:
        """What was decided last has happened: tell of it. Raises what went wrong so far."""
        self.end_event()
        if self.failure is not None:
            raise self.failure

    def end_event(self) -> None:
        event, self._open = self._open, None
        if event is None:
            return
        outcome = event.outcome
        if event.kind != "loaded" and outcome is not None and outcome.records:
            event.batch = self.journal.appended
            if event.batch is None:
                event.kind = self.journal.failed or "too large"
                event.outcome = None
                if event.kind == "append failed":
                    self.ended = self.kept
            else:
                for record in event.batch.records:
                    self.shadow.replay(record)
                if not outcome.when_written:
                    self._rests_on = len(self.log.batches)
        if event.waiter and event.kind == "request":
            when_written = outcome is not None and outcome.when_written
            self._ends[event.waiter] = 0 if when_written else self._rests_on, len(self.log.batches)
        self.kept = event.after = dict(self.core.transactions)
        try:
            if self.failure is None:
                self.observe(event)
        except Exception as error:
            self.failed(error)

    def loading(self, core: TransactionShard, outcome: Outcome) -> None:
        """A new shard was read from the log."""
        self.end_event()
        self.core, self.shadow = core, replayed(self.log.batches)
        self._ends.clear()
        self._rests_on = 0
        self._open = Event("loaded", self, self.ended, {}, outcome=outcome, lost=self.lost)
        self.lost = 0


def replayed(batches: Iterable[Batch]) -> TransactionShard:
    """A shard made from batches."""
    shard = TransactionShard()
    for batch in batches:
        for record in batch.records:
            shard.replay(record)
    return shard


def as_logged(transaction: Transaction | None, transaction_version: int) -> Transaction | None:
    """What of it the log tells."""
    if transaction is None:
        return None
    told = replace(transaction, last_producer_epoch=NO_EPOCH)
    if transaction_version >= 1:
        return told
    return replace(told, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
