"""The core of share state at work in virtual time: the broker's coordinator on a log that is a list.

As `sim.runtime` does for groups: the coordinator is the one that serves, its core is watched, and whatever
happens to it becomes an event. The shadow is given nothing but what was decoded from the log. What the core
calls superfluous is cut off, and what is left has to say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from konvene.errors import Errors
from konvene.records.coordinator import SHARE_STATE_RECORDS, decode_record
from konvene.runtime.coordinator import Call
from konvene.runtime.deferred import Deferred
from konvene.runtime.ports import Ports
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.image import Topics
from konvene.share_state.pruning import CUT
from konvene.share_state.requests import SharePartitionKey
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import SharePartitionState
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import Batch
from konvene.sim.share.state_log import SPEECH, StateJournal, StateLog
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.process_loop import ProcessLoop, TimerReportingCoordinator

NOBODY_DECIDED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS)
"""What a coordinator answers by itself."""

UPDATES = "share.coordinator.snapshot.update.records.per.snapshot"


def said(state: SharePartitionState) -> SharePartitionState:
    """What is left of it where the log was cut: a snapshot says everything, but for the highest epochs that
    ever were, and how many updates there were."""
    return state._replace(highest_state_epoch=0, highest_leader_epoch=0, updates=0)


States = Mapping[SharePartitionKey, SharePartitionState]


def _decoded(key: Any, value: Any) -> Any:
    return decode_record(key or b"", value, SHARE_STATE_RECORDS)


@dataclass(slots=True)
class StateEvent:
    """One thing that happened to the core of share state: "request", "completion", "timer", "loaded", or one
    of those that could not be appended: "append failed", "too large"."""

    kind: str
    runtime: ShareStateRuntime
    before: States
    after: States
    request: Any = None
    answer: Any = None
    batch: Batch | None = None
    waiter: int = 0
    lost: int = 0
    """How many batches of the log were lost before it was loaded."""


class _Watched:
    """A core with somebody looking over its shoulder."""

    def __init__(self, core: ShareStateShard, runtime: ShareStateRuntime) -> None:
        self.core = core
        self._runtime = runtime
        self.replay = core.replay
        self.cacheable = core.cacheable
        self.is_current = core.is_current

    def handle(self, request: Any, context: Context) -> Outcome:
        return self._decide("request" if context.waiter else "completion", request, context, self.core.handle)

    def expire(self, key: Any, context: Context) -> Outcome:
        return self._decide("timer", key, context, self.core.expire)

    def _decide(
        self, kind: str, about: Any, context: Context, decide: Callable[[Any, Context], Outcome]
    ) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        runtime.last_waiter = context.waiter
        try:
            outcome = decide(about, context)
        except Exception as error:
            runtime.failed(error)
            raise
        runtime.decided(kind, about, outcome, context.waiter)
        return outcome

    def load(self, context: Context) -> Outcome:
        outcome = self.core.load(context)
        self._runtime.loading(self.core)
        return outcome


class ShareStateRuntime:
    """A share coordinator, its log and its shadow; see `sim.runtime`."""

    def __init__(
        self,
        event_queue: EventQueue,
        config: Callable[[], Any],
        *,
        log: StateLog,
        topics: Callable[[], Topics],
        load_ms: Callable[[], int] = lambda: 0,
        observe: Callable[[StateEvent], None] = lambda event: None,
    ) -> None:
        self.log = log
        self.journal = StateJournal(log, at_once=False, decode=_decoded)
        self.observe = observe
        self.topics = topics
        self.updates: int = config()[UPDATES]
        self.core = self.shadow = ShareStateShard(self.updates)
        self.kept: States = {}
        """What there is, in a copy that nobody has."""
        self.ended: States = {}
        self.lost = 0
        self.disk_busy = False
        self.last_waiter = 0
        self.failure: Exception | None = None
        self._ends: dict[int, int] = {}
        self._waiting: dict[Deferred[Any], None] = {}
        """Who is told that there is no coordinator any more, when it dies."""
        self._open: StateEvent | None = None
        self._outcome: Outcome | None = None
        self._loop = ProcessLoop(
            event_queue, lambda: load_ms() if self.coordinator.state == "loading" else 0, self.end_event
        )
        self.coordinator = TimerReportingCoordinator(
            "share state",
            lambda: cast("Any", _Watched(ShareStateShard(self.updates), self)),
            SPEECH,
            Ports(
                journal=cast("Any", self.journal),
                config=config,
                loop=cast("Any", self._loop),
                wall_clock_ms=event_queue.wall_clock_ms,
                topics=topics,
                perform=self._cut,
            ),
        )
        self.coordinator.fired = self.end_event

    def __repr__(self) -> str:
        return f"<share state: {self.coordinator!r}, {self.log!r}>"

    @property
    def is_active(self) -> bool:
        return self.coordinator.state == "active"

    # --- what is done to it ---

    def load(self) -> None:
        self.coordinator.load()
        self.end_event()

    def die(self) -> None:
        """The process is gone: it answers nobody, and nothing of it happens any more."""
        self.end_event()
        self.ended = self.last_state()
        self._loop.end()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            answer.resolve(Errors.NOT_COORDINATOR)

    def last_state(self) -> States:
        """All that there is; where nothing was read yet, all that there was before."""
        return dict(self.core.states) if self.is_active else self.ended

    def submit(self, request: Any, call: Call) -> Deferred[Any]:
        """As the coordinator's, but that it is looked when the answer leaves."""
        self.last_waiter = 0
        answer: Deferred[Any] = Deferred()
        decided = self.coordinator.submit(request, call)
        waiter = self.last_waiter
        self._waiting[answer] = None
        decided.listen(lambda told: self._leaves(waiter, told, answer))
        self.end_event()
        return answer

    def inform(self, news: Any) -> None:
        self.coordinator.inform(news)
        self.end_event()

    def _leaves(self, waiter: int, told: Any, answer: Deferred[Any]) -> None:
        """G6: an answer leaves when all is durable that was decided before it."""
        self.end_event()
        end = self._ends.pop(waiter, 0)
        if end > self.log.durable and told not in NOBODY_DECIDED:
            why = f"answered when {self.log.durable} batches were durable, decided behind {end}: {told}"
            self.failed(InvariantViolation("AnswersWaitForTheDisk", why))
        self._waiting.pop(answer, None)
        answer.resolve(told)

    @property
    def waits_for_disk(self) -> bool:
        return self.journal.sync_pause is not None

    def made_durable(self) -> None:
        self.log.durable = max(self.log.durable, self.journal.sync_end)
        self._end_sync(None)

    def sync_fails(self) -> None:
        self.end_event()
        self.ended = dict(self.core.states)
        self._end_sync(OSError("the sync failed"))

    def _end_sync(self, error: OSError | None) -> None:
        pause, self.journal.sync_pause = self.journal.sync_pause, None
        if pause is not None:
            pause.end(error)
        self.end_event()

    def _cut(self, effect: Effect) -> None:
        """The beginning of the log goes."""
        assert effect.verb == CUT
        gone = self.log.lose_beginning(effect.subject)
        self._ends = {waiter: end - gone for waiter, end in self._ends.items()}
        self.journal.sync_end -= gone
        left = ShareStateShard(self.updates)
        for batch in self.log.batches:
            for record in batch.records:
                left.replay(record)
        known = {key: said(state) for key, state in self.core.states.items()}
        told = {key: said(state) for key, state in left.states.items()}
        if told != known:
            why = f"what is left from offset {effect.subject} on says {told}, and there is {known}"
            self.failed(InvariantViolation("WhatIsCutIsSuperfluous", why))

    # --- what becomes of it ---

    def decided(self, kind: str, request: Any, outcome: Outcome, waiter: int) -> None:
        """The core decided; what follows from it is about to happen."""
        if self.core.states != self.kept:
            self.failed(
                InvariantViolation("ShareStateChangesByRecords", f"{request}: changed without a record")
            )
        answer = dict(outcome.replies).get(waiter) if waiter else None
        self._open = StateEvent(kind, self, self.kept, {}, request, answer, waiter=waiter)
        self._outcome = outcome
        self.journal.appended = self.journal.failed = self.journal.refused = None

    def failed(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error

    def end_event(self) -> None:
        """What was decided last has happened: tell of it. `failure` is what went wrong first."""
        event, self._open = self._open, None
        if event is None:
            return
        if event.kind != "loaded" and self._outcome is not None and self._outcome.records:
            event.batch = self.journal.appended
            if event.batch is None:
                event.kind = self.journal.failed or "too large"
                if event.kind == "append failed":
                    self.ended = self.kept
            else:
                for record in event.batch.records:
                    self.shadow.replay(record)
        if event.waiter and event.kind == "request":
            self._ends[event.waiter] = len(self.log.batches)
        self.kept = event.after = dict(self.core.states)
        try:
            if self.failure is None:
                self.observe(event)
        except Exception as error:
            self.failed(error)

    def loading(self, core: ShareStateShard) -> None:
        """A new shard was read from the log."""
        self.end_event()
        self.core = core
        self.shadow = ShareStateShard(self.updates)
        for batch in self.log.batches:
            for record in batch.records:
                self.shadow.replay(record)
        self._ends.clear()
        self._open = StateEvent("loaded", self, self.ended, {}, lost=self.lost)
        self.lost = 0
