"""A shard at work in virtual time: the broker's coordinator on a log that is a list.

The coordinator is the one that serves. What it stands on is made for it: a log whose batches are values
(`journal`), that becomes durable when somebody says so, can fail, lose its tail, be compacted and be taken
over by another leader; a core that is watched, so that whatever happens to it becomes an `Event` for whoever
observes. The shadow, a second shard, is given nothing but what was decoded from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.groups.shard import GroupShard
from konvene.records.classic import GroupMetadataKey
from konvene.records.commits import OffsetCommitted
from konvene.records.transactional import InTransaction
from konvene.runtime.coordinator import Call
from konvene.runtime.ports import ExplainedRebalance, Ports
from konvene.shard.contract import NO_ASSIGNORS, Context, Effect, Outcome
from konvene.shard.errors import Refusal
from konvene.shard.image import Topic, Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import SPEECH, Journal, Log, replayed
from konvene.sim.world.event import (
    EMPTY_VIEW,
    MODERN_GROUP_TYPES,
    Event,
    InvariantViolation,
    OffsetKey,
    View,
    full_view,
)
from konvene.sim.world.process_loop import ProcessLoop, TimerReportingCoordinator

TOPICS = Topics(
    [Topic("orders", Uuid(b"orders".ljust(16, b"-")), 6), Topic("audit", Uuid(b"audit".ljust(16, b"-")), 2)]
)
"""The topics that there are where nobody says otherwise."""


NOBODY_DECIDED = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS)
"""What a coordinator answers by itself."""


class _Watched:
    """A core with somebody looking over its shoulder."""

    def __init__(self, core: GroupShard, runtime: GroupRuntime) -> None:
        self.core = core
        self._runtime = runtime
        self.replay = core.replay
        self.cacheable = core.cacheable
        self.is_current = core.is_current

    def handle(self, request: Struct, context: Context) -> Outcome:
        runtime = self._runtime
        runtime.end_event()
        if not context.waiter:
            return self._hear(request, context)
        runtime.undecided[context.waiter] = request
        runtime.last_waiter = context.waiter
        try:
            outcome = self.core.handle(request, context)
        except Refusal as refused:
            runtime.decided(None, request=request, context=context, refused=refused.error)
            raise
        except Exception as error:
            runtime.failed(error)
            raise
        runtime.decided(outcome, request=request, context=context)
        return outcome

    def _hear(self, news: Any, context: Context) -> Outcome:
        """What came of work that was done elsewhere: nobody waits for an answer."""
        try:
            outcome = self.core.handle(news, context)
        except Exception as error:
            self._runtime.failed(error)
            raise
        self._runtime.decided(outcome, key=("completion", type(news).__name__), context=context, news=news)
        return outcome

    def expire(self, key: Any, context: Context) -> Outcome:
        self._runtime.end_event()
        try:
            outcome = self.core.expire(key, context)
        except Exception as error:
            self._runtime.failed(error)
            raise
        self._runtime.decided(outcome, key=key)
        return outcome

    def load(self, context: Context) -> Outcome:
        try:
            outcome = self.core.load(context)
        except Exception as error:
            self._runtime.failed(error)
            raise
        self._runtime.loading(self.core, outcome)
        return outcome


class GroupRuntime:
    """A coordinator, its log and its shadow.

    `at_once`: what is appended is durable at once. `load_ms`: how long reading the log takes, each time.
    `observe` is told each event when it is over; `tell` each rebalance that was explained; `perform` what is
    to be done elsewhere, of which `inform` tells the shard what came.
    """

    def __init__(
        self,
        event_queue: EventQueue,
        config: Callable[[], Any],
        *,
        log: Log | None = None,
        topics: Callable[[], Topics] = lambda: TOPICS,
        task_assignors: Mapping[str, Any] = NO_ASSIGNORS,
        at_once: bool = True,
        load_ms: Callable[[], int] = lambda: 0,
        observe: Callable[[Event], None] = lambda event: None,
        tell: Callable[[ExplainedRebalance], None] = lambda explained: None,
        perform: Callable[[Effect], None] = lambda effect: None,
    ) -> None:
        self.event_queue = event_queue
        self.log = log if log is not None else Log()
        self.journal = Journal(self.log, at_once)
        self.observe = observe
        self.core = GroupShard()
        self.shadow = GroupShard()
        self.kept: dict[str, Any] = {}
        """Of each group a copy that nobody has: to see whether a value was changed behind our back."""
        self.undecided: dict[int, Struct] = {}
        """Requests that wait for a decision, by the number of who waits."""
        self.ended = EMPTY_VIEW
        """What there was when the last shard ended."""
        self.lost = 0
        self.disk_busy = False
        """Whether somebody has seen to it that the sync under way comes to an end."""
        self.last_waiter = 0
        """The number of who asked last."""
        self.failure: Exception | None = None
        """What went wrong first: an invariant that was violated, or an error that no core may raise. The
        coordinator goes on after an error; `finish` raises it where the coordinator cannot catch it."""
        self._unheard: set[int] = set()
        """The numbers of those who asked and have no answer yet, or one that waits for the disk."""
        self._ends: dict[int, int] = {}
        """Where the log ended when an answer was decided, by the number of whose it is."""
        self._open: Event | None = None
        self._about: tuple[tuple[str, ...], tuple[OffsetKey, ...]] = ((), ())
        self._config = config
        self._topics = topics
        self._loop = ProcessLoop(
            event_queue, lambda: load_ms() if self.coordinator.state == "loading" else 0, self.finish
        )
        self.coordinator = TimerReportingCoordinator(
            "sim",
            lambda: cast("Any", _Watched(GroupShard(), self)),
            SPEECH,
            Ports(
                journal=cast("Any", self.journal),
                config=config,
                loop=cast("Any", self._loop),
                wall_clock_ms=event_queue.wall_clock_ms,
                topics=topics,
                assignors=OFFERED,
                task_assignors=task_assignors,
                perform=perform,
                on_rebalance=tell,
            ),
        )
        self.coordinator.fired = self.end_event

    def __repr__(self) -> str:
        return f"<group runtime: {self.coordinator!r}, {self.log!r}>"

    @property
    def config(self) -> Any:
        return self._config()

    @property
    def topics(self) -> Topics:
        return self._topics()

    @property
    def group_configs(self) -> GroupConfigs:
        """What groups run with, as the coordinator tells it."""
        return self.coordinator.group_configs

    @property
    def now_ms(self) -> int:
        """The wall clock, as decisions know it."""
        return self.event_queue.wall_clock_ms()

    @property
    def timers(self) -> Mapping[Any, int]:
        """What is armed, and when it rings: in the agenda's milliseconds."""
        return {key: round(at * 1000) for key, at in self.coordinator.deadlines.items()}

    def due_ms(self, key: Any) -> int | None:
        """In how many milliseconds a timer rings; None if it is not armed."""
        at = self.coordinator.deadlines.get(key)
        return None if at is None else round(at * 1000) - self.event_queue.now_ms

    # --- what is done to it ---

    def load(self) -> None:
        """Read the log, and serve."""
        self.coordinator.load()
        self.finish()

    def die(self) -> None:
        """The process is gone: it answers nobody, and nothing of it happens any more."""
        self.finish()
        self._loop.end()
        self.ended = self.last_state()

    def succeeds(self, old: GroupRuntime, lost: int) -> None:
        """Follow one that is gone or deposed; so many batches of the log that it had were lost."""
        self.ended, self.lost = old.last_state(), old.lost + lost

    def last_state(self) -> View:
        """All that there is; where nothing was read yet, all that there was before."""
        return full_view(self.core) if self.coordinator.state == "active" else self.ended

    def ask(
        self, request: Struct, call: Call, answered: Callable[[Struct | Errors], None] = lambda answer: None
    ) -> None:
        """Submit a request; `answered` is called once, now or later."""
        self.last_waiter = 0
        state = self.coordinator.state
        later = self.coordinator.submit(request, call)
        waiter = self.last_waiter
        if not waiter:
            later.listen(lambda answer: self._turned_away(state, answer))
        self._unheard.add(waiter)
        later.listen(lambda answer: self._leaves(waiter, answer, answered))
        self.finish()

    def inform(self, news: Any) -> bool:
        """Tell the shard what came of work that it asked for; False where that does not fit into the log."""
        fits = self.coordinator.inform(news)
        self.finish()
        return fits

    def _turned_away(self, state: str, answer: Struct | Errors) -> None:
        """L7: who reads its log says so, and who lost it sends to another coordinator."""
        loads = state == "loading"
        expected = Errors.COORDINATOR_LOAD_IN_PROGRESS if loads else Errors.NOT_COORDINATOR
        if state == "active" or answer is not expected:
            self.failed(
                InvariantViolation(
                    "WhoLoadsSaysSo", f"a coordinator that is {state} answers {answer!r} undecided"
                )
            )

    def _leaves(self, waiter: int, answer: Struct | Errors, answered: Callable[[Any], None]) -> None:
        """G6: an answer leaves when all is durable that was decided before it."""
        self.end_event()
        self._unheard.discard(waiter)
        end = self._ends.pop(waiter, 0)
        if end > self.log.durable and self.journal.online and answer not in NOBODY_DECIDED:
            why = f"answered when {self.log.durable} batches were durable, decided behind {end}: {answer}"
            self.failed(InvariantViolation("AnswersWaitForTheDisk", why))
        answered(answer)

    def made_durable(self, but: int = 0) -> None:
        """What was appended, `but` for so many batches, is on the disk now; answers that waited for it leave.

        G12: and nobody's is held while nothing is on its way to the disk, now or in a moment."""
        if self.journal.online:
            self.log.durable = max(self.log.durable, len(self.log.batches) - but)
            self._end_sync(None)
            if self._ends and not (self.waits_for_disk or self.coordinator.lingers):
                why = f"{len(self._ends)} answers wait for the disk, and no sync is under way"
                raise InvariantViolation("AnswersWaitForTheDisk", why)

    def sync_fails(self) -> None:
        """The disk says no; nobody knows what of it is there."""
        self.finish()
        self.ended = full_view(self.core)
        self._end_sync(OSError("the sync failed"))

    def _end_sync(self, error: OSError | None) -> None:
        pause, self.journal.sync_pause = self.journal.sync_pause, None
        if pause is not None:
            pause.end(error)
        self.finish()

    @property
    def waits_for_disk(self) -> bool:
        """Whether there are answers that wait for the log to be durable."""
        return self.journal.sync_pause is not None

    # --- what becomes of it ---

    def decided(
        self,
        outcome: Outcome | None,
        *,
        request: Struct | None = None,
        context: Context | None = None,
        key: Any = None,
        refused: Errors | None = None,
        news: Any = None,
    ) -> None:
        """The core decided; what follows from it is about to happen."""
        self._about = about = _about(request if news is None else news, outcome, self.log)
        event = Event("request", self, self._before(about), EMPTY_VIEW, key=key, outcome=outcome)
        if outcome is not None:
            event.answered = outcome.replies
        if request is None or context is None:
            event.kind = "timer" if news is None else "completion"
            event.news, event.context = news, context
        else:
            event.api = type(request).__name__.removesuffix("Request")
            event.request, event.version, event.client_id = request, context.api_version, context.client_id
            event.context, event.waiter = context, context.waiter
            event.answer = refused if refused is not None else dict(event.answered).get(context.waiter)
        self.journal.appended = self.journal.failed = self.journal.refused = None
        self._open = event

    def failed(self, error: Exception) -> None:
        """Something is wrong that the coordinator does not know of, or would only log."""
        if self.failure is None:
            self.failure = error

    def finish(self) -> None:
        """What was decided last has happened: tell of it. Raises what went wrong so far."""
        self.end_event()
        if self.failure is not None:
            raise self.failure

    def _tell(self, event: Event) -> None:
        if self.failure is None:
            try:
                self.observe(event)
            except Exception as error:
                self.failure = error

    def end_event(self) -> None:
        """The same from within the coordinator: nothing is raised."""
        event, self._open = self._open, None
        if event is None:
            return
        if event.kind == "loaded":
            event.after = full_view(self.core)
            self._tell(event)
            self.kept = {name: group.copy() for name, group in self.core.groups.items()}
            return
        outcome = event.outcome
        writes = outcome is not None and (outcome.records or outcome.ending is not None)
        if writes and self.journal.appended is None:
            self._failed(event, self.journal.failed or "too large")
            outcome = event.outcome
        self._answers(event)
        event.changed = outcome is not None and bool(
            outcome.records or outcome.soft_records or outcome.ending is not None
        )
        event.batch = self.journal.appended
        if event.batch is not None:
            for record in event.batch.records:
                self.shadow.replay(record)
        event.after = self._view(self._about) if event.changed else event.before
        self._tell(event)
        if event.changed:
            self._keep(event)

    def _answers(self, event: Event) -> None:
        """Who has an answer now, which may have to wait for the disk."""
        end = len(self.log.batches)
        waiters = [waiter for waiter, _ in event.answered]
        if event.answer is not None:
            waiters.append(event.waiter)
        for waiter in waiters:
            if self.undecided.pop(waiter, None) is not None:
                self._ends[waiter] = end

    def _failed(self, event: Event, how: str) -> None:
        event.outcome, event.answered = None, ()
        if how == "append failed":
            event.kind, event.answer = how, None
            self.ended = full_view(self.core)
            self.undecided.clear()
        elif event.request is not None:
            event.kind, event.answer = how, self.journal.refused or Errors.UNKNOWN_SERVER_ERROR

    def _keep(self, event: Event) -> None:
        for name, group in event.after.groups.items():
            if group is not event.before.groups.get(name):
                self.kept[name] = group.copy()
        for name in event.before.groups:
            if name not in event.after.groups:
                self.kept.pop(name, None)

    def audit(self) -> None:
        """Let everything be looked at."""
        self.finish()
        if self.coordinator.state == "active":
            view = full_view(self.core)
            self._tell(Event("audit", self, view, view))
            self.finish()

    def loading(self, core: GroupShard, outcome: Outcome) -> None:
        """A new shard was read from the log."""
        self.end_event()
        if self._unheard:
            why = f"the shard is loaded again, {len(self._unheard)} who asked the last one were told nothing"
            self.failed(InvariantViolation("EveryRequestIsAnswered", why))
        self.core, self.shadow = core, replayed(self.log.batches)
        self.undecided.clear()
        self._ends.clear()
        self._open = Event("loaded", self, self.ended, EMPTY_VIEW, outcome=outcome, lost=self.lost)
        self.lost = 0

    def _before(self, about: tuple[tuple[str, ...], tuple[OffsetKey, ...]]) -> View:
        """The same before anything was replayed, as it stays."""
        view = self._view(about)
        groups = dict(view.groups)
        for name, group in view.groups.items():
            if isinstance(group, MODERN_GROUP_TYPES):
                groups[name] = known = self.kept.get(name)
                if known != group:
                    why = f"group {name} was changed without a record: {known!r} is {group!r}"
                    self.failed(InvariantViolation("DecisionsChangeNothing", why))
        return View(groups, view.offsets)

    def _view(self, about: tuple[tuple[str, ...], tuple[OffsetKey, ...]]) -> View:
        """These groups and offsets as they are now."""
        names, keys = about
        groups, offsets = self.core.groups, self.core.offsets
        found = {}
        for key in keys:
            told = offsets.get(key[0], {}).get(key[1], {}).get(key[2])
            if told is not None:
                found[key] = told
        return View({name: groups[name] for name in names if name in groups}, found)


def _about(request: Any, outcome: Outcome | None, log: Log) -> tuple[tuple[str, ...], tuple[OffsetKey, ...]]:
    """The groups and the offsets that a request and its outcome name; of a transaction's end those that are
    committed in it."""
    names: dict[str, None] = {}
    keys: list[OffsetKey] = []
    group_id = getattr(request, "group_id", None)
    if group_id is not None:
        names[group_id] = None
    if outcome is not None:
        for record in outcome.records:
            if type(record) is OffsetCommitted:
                names[record.group] = None
                keys.append((record.group, record.topic, record.partition))
            else:
                names[_named(record.key)] = None
        if outcome.ending is not None:
            for record in _written_by(outcome.ending.producer_id, log):
                names[record.group] = None
                keys.append((record.group, record.topic, record.partition))
        for record in outcome.soft_records:
            names[record.group_id if isinstance(record, SoftStateRecord) else record.group.group_id] = None
    return tuple(names), tuple(keys)


def _written_by(producer_id: int, log: Log) -> Iterator[OffsetCommitted]:
    """What stands in the transaction of this producer that is open."""
    producer = log.producers.by_id.get(producer_id)
    if producer is not None and producer.transaction_start is not None:
        for batch in log.batches[producer.transaction_start :]:
            for record in batch.records:
                if type(record) is InTransaction and record.producer_id == producer_id:
                    yield record.record


def _named(key: Any) -> str:
    """The group that a record is of."""
    group_id: str = key.group if isinstance(key, GroupMetadataKey) else key.group_id
    return group_id
