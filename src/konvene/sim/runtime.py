"""Runs any shard in virtual time: the production coordinator on a log in memory.

Everything below the coordinator is simulated: a log of batches (`journal`), which becomes durable on command,
can fail, lose its tail, be compacted and be taken over by another leader; and an event queue instead of an
event loop. The shard is observed: each decision (of a request, a completion or a timer) and each load becomes
an event for the invariants. The shadow is a second shard that replays only what was decoded from the log.

A subclass for each type of shard creates shards and events, and defines which state an event contains and up
to which batch the log must be durable before a response may be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.assignors import Assignor
from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import Deferred
from konvene.runtime.ports import ExplainedRebalance, Ports, RecordSerde
from konvene.shard.contract import NO_ASSIGNORS, Context, Core, Effect, Outcome
from konvene.shard.errors import Refusal
from konvene.shard.image import NO_TOPICS, Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import Batch, Journal
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.process_loop import ProcessLoop, TimerReportingCoordinator

ERRORS_WITHOUT_DECISION = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS)
"""Errors that a coordinator answers without its shard."""

REQUEST, COMPLETION, TIMER = "request", "completion", "timer"
"""Kinds of decisions."""


class ShardEvent(Protocol):
    """The interface of an event: the fields that a runtime needs, whatever the type of shard; see
    `konvene.sim.world.event.Event`."""

    kind: str
    waiter: int
    outcome: Outcome | None
    batch: Batch | None


S = TypeVar("S", bound=Core)
E = TypeVar("E", bound=ShardEvent)
V = TypeVar("V")


class _ObservedShard:
    """A shard that reports each call to its runtime, and passes it on to the production shard."""

    def __init__(self, core: Core, runtime: ShardRuntime[Any, Any]) -> None:
        self.core = core
        self._runtime = runtime
        self.replay = core.replay
        self.cacheable = core.cacheable
        self.is_current = core.is_current

    def handle(self, request: object, context: Context) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        kind = REQUEST if context.waiter else COMPLETION
        if context.waiter:
            runtime.last_waiter = context.waiter
            runtime.deciding(request, context)
        try:
            outcome = self.core.handle(request, context)
        except Refusal as refusal:
            if runtime.refuses_requests if context.waiter else runtime.refuses_completions:
                runtime.decided(kind, request, context, None, refusal.error)
            else:
                runtime.failed(refusal)
            raise
        except Exception as error:
            runtime.failed(error)
            raise
        runtime.decided(kind, request, context, outcome)
        return outcome

    def expire(self, key: tuple[str, ...], context: Context) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        try:
            outcome = self.core.expire(key, context)
        except Exception as error:
            runtime.failed(error)
            raise
        runtime.decided(TIMER, key, context, outcome)
        return outcome

    def load(self, context: Context) -> Outcome:
        try:
            outcome = self.core.load(context)
        except Exception as error:
            self._runtime.failed(error)
            raise
        self._runtime.loaded(self.core, outcome)
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPorts:
    """The callbacks through which a runtime reads configs, topics and features of the simulated world, and
    reports events to it; and the assignors. Its log and event queue are passed separately."""

    config: Callable[[], BrokerConfig]
    topics: Callable[[], Topics] = lambda: NO_TOPICS
    features: Callable[[], Mapping[str, int]] = dict
    assignors: Mapping[str, Assignor] = field(default_factory=lambda: NO_ASSIGNORS)
    task_assignors: Mapping[str, TaskAssignor] = field(default_factory=lambda: NO_ASSIGNORS)
    load_ms: Callable[[], int] = lambda: 0
    """Returns the duration of the next load of the log."""
    observe: Callable[[Any], None] = lambda event: None
    """Receives each event when it is over."""
    on_rebalance: Callable[[ExplainedRebalance], None] = lambda explained: None
    """Receives each explained rebalance."""
    perform: Callable[[Effect], None] = lambda effect: None
    """Starts work outside of the shard, whose result comes back through `ShardRuntime.inform`."""

    def connect(self, journal: Journal, loop: ProcessLoop, wall_clock_ms: Callable[[], int]) -> Ports:
        """Return the ports of a coordinator with this log, loop and clock."""
        return Ports(
            journal=journal,
            config=self.config,
            loop=cast("Any", loop),
            wall_clock_ms=wall_clock_ms,
            topics=self.topics,
            features=self.features,
            assignors=self.assignors,
            task_assignors=self.task_assignors,
            perform=self.perform,
            on_rebalance=self.on_rebalance,
        )


class ShardRuntime(Generic[E, V]):
    """A coordinator in virtual time, with its log and a shadow: a shard that replays only the log.

    `E` is the type of its events, `V` the type of the states in them."""

    name = ""
    """Name of the coordinator in logs."""
    refuses_requests = True
    """Whether the shard may raise `Refusal` for a request."""
    refuses_completions = False
    """Whether the shard may raise `Refusal` for the result of work outside of it."""

    def __init__(
        self,
        event_queue: EventQueue,
        ports: SimulatedPorts,
        *,
        journal: Journal,
        serde: RecordSerde,
        empty: V,
    ) -> None:
        self.event_queue = event_queue
        self.journal = journal
        self.log = journal.log
        self.observe: Callable[[E], None] = ports.observe
        self.core: Core = self.new_shard()
        self.shadow: Core = self.new_shard()
        self.ended = empty
        """State of the shard when the previous process ended."""
        self.lost = 0
        """Number of batches that the log lost before this process loads it."""
        self.disk_busy = False
        """Whether the end of the current sync is already scheduled."""
        self.last_waiter = 0
        """Number of the request that the shard decided last; 0 if none since the last submit."""
        self.failure: Exception | None = None
        """The first violation, or the first error that no shard may raise. The coordinator survives such
        errors; `finish` raises them where the coordinator cannot catch them."""
        self._release_positions: dict[int, tuple[int, int]] = {}
        """Number of batches that must be durable, and written, before a response may leave, by waiter."""
        self._open_event: E | None = None
        self._config = ports.config
        self._topics = ports.topics
        self._loop = ProcessLoop(
            event_queue, lambda: ports.load_ms() if self.coordinator.state == "loading" else 0, self.finish
        )
        self.coordinator = TimerReportingCoordinator(
            self.name,
            lambda: _ObservedShard(self.new_shard(), self),
            serde,
            ports.connect(journal, self._loop, event_queue.wall_clock_ms),
        )
        self.coordinator.fired = self.end_event

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.coordinator!r}, {self.log!r}>"

    @property
    def config(self) -> BrokerConfig:
        return self._config()

    @property
    def topics(self) -> Topics:
        return self._topics()

    @property
    def is_active(self) -> bool:
        return self.coordinator.state == "active"

    # --- for subclasses ---

    def new_shard(self) -> Core:
        """Return an empty shard."""
        raise NotImplementedError

    def current_state(self) -> V:
        """Return the state of the shard as a value that later decisions do not change."""
        raise NotImplementedError

    def new_event(
        self, kind: str, subject: object, context: Context, outcome: Outcome | None, refused: Errors | None
    ) -> E:
        """Return a new event for a decision whose records are not appended and replayed yet.

        `subject` is the request, the completion or the key of the timer. `refused` is the error with which
        the shard rejected it; `outcome` is None then."""
        raise NotImplementedError

    def new_load_event(self, outcome: Outcome) -> E:
        """Return a new event for a completed load; `outcome` is what the loaded shard decided first."""
        raise NotImplementedError

    def append_failed(self, event: E, how: str) -> None:
        """Record in the event that its records were not appended.

        `how` is "too large", "refused" or "append failed"."""
        raise NotImplementedError

    def note_responses(self, event: E) -> None:
        """Record up to which batch the log must be durable before the responses of an event may be sent."""
        raise NotImplementedError

    def end(self, event: E) -> None:
        """Complete an event: add the state after it, and report it to the observer."""
        raise NotImplementedError

    def check_reload(self) -> None:
        """Called before a load replaces the current shard by a new one; a subclass checks what has to be true
        then."""

    def reset(self) -> None:
        """Called after a load has replaced the shard; a subclass clears what it recorded about the old
        one."""

    def deciding(self, request: object, context: Context) -> None:
        """Called before the shard decides a request; a subclass may observe it."""

    def submitted(self, state: str, waiter: int, response: Deferred[Any]) -> None:
        """Called when a request was submitted while the coordinator was in `state`; a subclass may observe
        it.

        `waiter` identifies the pending response; 0 if the shard did not receive the request."""

    def released(self, waiter: int) -> None:
        """Called when the response of `waiter` is sent; a subclass may observe it."""

    # --- operation ---

    def load(self) -> None:
        """Let the coordinator load its log and become active."""
        self.coordinator.load()
        self.finish()

    def die(self) -> None:
        """Kill the process: it sends no response, and none of its callbacks runs any more."""
        self.finish()
        self._loop.end()
        self.ended = self.last_state()

    def last_state(self) -> V:
        """Return the current state of the shard or, if the log is not loaded yet, the last state of the
        previous process."""
        return self.current_state() if self.is_active else self.ended

    def ask(
        self, request: object, call: RequestContext, answered: Callable[[Any], None] = lambda response: None
    ) -> None:
        """Submit a request; `answered` is called once with its response, now or later."""
        self.last_waiter = 0
        state = self.coordinator.state
        response = self.coordinator.submit(request, call)
        waiter = self.last_waiter
        self.submitted(state, waiter, response)
        response.listen(lambda answer: self._release(waiter, answer, answered))
        self.finish()

    def inform(self, completion: object) -> bool:
        """Let the shard decide about the result of work outside of it, such as a computed assignment.

        Return False if the records of the decision do not fit into a batch."""
        fits = self.coordinator.inform(completion)
        self.finish()
        return fits

    def _release(self, waiter: int, response: Any, answered: Callable[[Any], None]) -> None:
        """G6: send a response, and check that everything that was decided before it is durable."""
        self.end_event()
        self.released(waiter)
        durable, written = self._release_positions.pop(waiter, (0, 0))
        log = self.log
        early = durable > log.durable or written > max(log.written, log.durable)
        if early and self.journal.online and response not in ERRORS_WITHOUT_DECISION:
            why = f"response sent with {log.durable} durable batches, but it needs {durable}: {response}"
            self.failed(InvariantViolation("ResponsesWaitForDurability", why))
        answered(response)

    def complete_sync(self) -> None:
        """Make the batches of the current sync durable, and send the responses that waited for them."""
        self.log.durable = max(self.log.durable, self.journal.sync_end)
        self._end_sync(None)

    def fail_sync(self) -> None:
        """Let the current sync fail, so that it is unknown which of its batches are on disk."""
        self.finish()
        self.ended = self.current_state()
        self._end_sync(OSError("the sync failed"))

    def _end_sync(self, error: OSError | None) -> None:
        pause, self.journal.sync_pause = self.journal.sync_pause, None
        if pause is not None:
            pause.end(error)
        self.finish()

    @property
    def sync_pending(self) -> bool:
        """Whether the coordinator waits for a sync of the log."""
        return self.journal.sync_pause is not None

    # --- decisions ---

    def decided(
        self,
        kind: str,
        subject: object,
        context: Context,
        outcome: Outcome | None,
        refused: Errors | None = None,
    ) -> None:
        """Create the event of a decision and keep it open: the coordinator appends and replays its records
        next, and `end_event` completes the event then."""
        event = self.new_event(kind, subject, context, outcome, refused)
        self.journal.appended = self.journal.failed = self.journal.refused = None
        self._open_event = event

    def loaded(self, core: Core, outcome: Outcome) -> None:
        """Create the event of a load and keep it open until `end_event`: `core` was read from the log and
        replaces the current shard; `outcome` is what it decided first."""
        self.end_event()
        self.check_reload()
        self.core = core
        self.shadow = replay(self.log.batches, self.new_shard())
        self._release_positions.clear()
        self.reset()
        self._open_event = self.new_load_event(outcome)
        self.lost = 0

    def failed(self, error: Exception) -> None:
        """Record `error` as the failure of this runtime unless it has one; used for errors that the
        coordinator does not notice, or would only log."""
        if self.failure is None:
            self.failure = error

    def finish(self) -> None:
        """End the event that `decided` or `loaded` has opened, if any, and raise the first failure of this
        runtime."""
        self.end_event()
        if self.failure is not None:
            raise self.failure

    def end_event(self) -> None:
        """End the event that `decided` or `loaded` has opened, if any, once its records were appended and
        replayed, or that failed. Raises nothing."""
        event, self._open_event = self._open_event, None
        if event is None:
            return
        if event.kind != "loaded":
            outcome = event.outcome
            if outcome is not None and (outcome.records or outcome.ending is not None):
                event.batch = self.journal.appended
                if event.batch is None:
                    self.append_failed(event, self.journal.failed or "too large")
                else:
                    replay((event.batch,), self.shadow)
            self.note_responses(event)
        self.end(event)

    def report(self, event: E) -> None:
        """Pass an event to the observer, which checks the invariants; its first error becomes the failure of
        this runtime."""
        if self.failure is None:
            try:
                self.observe(event)
            except Exception as error:
                self.failed(error)


def replay(batches: Iterable[Batch], shard: S) -> S:
    """Replay the records of batches into a shard, and return it."""
    for batch in batches:
        for record in batch.records:
            shard.replay(record)
    return shard
