"""The real core, stepped from one small value to the next.

`Steps` makes a `GroupShard` from a `Coordinator`, lets it handle, expire or load, replays what it decided
(into a shadow from the bytes, as a log would give them) and reads the shard back into a `Coordinator`. A
decision depends on nothing else, so the same step is made once and remembered. The invariants are held
against it when it is made. They are the very classes of `sim.invariants`; what an invariant remembers of the
past is put into it from the value, and that is why `given` and `told` are part of a `Coordinator`.

The shell's laws hold: a step's records are one batch, and its answers belong to whoever calls, who lets them
leave when the batch is durable. The retention timer is always armed and never rings.

Left out are invariants that remember how long something takes: the model has no clock. Still ugly: `_Bench`
looks like a `GroupRuntime` to the invariants because it has the same names, not because a type says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from konvene.codec.schema import Struct
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.groups.assignors import OFFERED
from konvene.groups.classic.decision import join_key, session_key, sync_key
from konvene.groups.classic.group import ClassicGroup, ClassicGroupSnapshot
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.groups.shard import GroupShard
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.commits import encode_group_record
from konvene.shard.contract import Arm, Context, Outcome
from konvene.shard.errors import Refusal
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.invariants.classic.generations import AssignmentsComeFromTheLeader, EveryGenerationHasATrace
from konvene.sim.invariants.log import DecisionsAreOneBatch, RequestsAreAnsweredOnce
from konvene.sim.invariants.offsets import OffsetsAreTheLastCommitted, entry_of
from konvene.sim.journal import Batch, batch_of
from konvene.sim.model_check.states import (
    live_group,
    offset_records,
    small_group,
    small_stored,
    stored_records,
    waiting,
)
from konvene.sim.model_check.values import (
    CLIENT_HOST,
    CLIENT_ID,
    GHOST,
    GROUP,
    INITIAL_DELAY_MS,
    JOIN,
    NOW_MS,
    SYNC,
    TOPIC,
    VERSIONS,
    Coordinator,
    Words,
    bits,
    bits_of,
    instance_name,
    instance_number,
    is_request,
    member_name,
    member_number,
    real_request,
    refused,
    small_answer,
    topics,
)
from konvene.sim.world.event import Event, Invariant, InvariantViolation, View, full_view

if TYPE_CHECKING:
    from konvene.sim.group_runtime import GroupRuntime

KINDS = ("classic", "static")

REMINDED = (
    RequestsAreAnsweredOnce, DecisionsAreOneBatch, OffsetsAreTheLastCommitted, AssignmentsComeFromTheLeader,
    EveryGenerationHasATrace,
)  # fmt: skip
"""Invariants that remember the past, where `_Bench` tells them what it was. Others that do are left out."""


class Step(NamedTuple):
    """What came of a step."""

    after: Coordinator
    answers: tuple[tuple[int, Words], ...]
    """Who is answered, and what. Nobody who is gone is listed."""
    wrote: bool
    """Whether there was a batch."""
    waits: bool
    """Of a request: it has no answer yet."""
    told: Words = ()
    """What is told whoever asked, also where nobody hears it."""


class ViolatingStep(InvariantViolation):
    """A step that does not keep an invariant, or fails.

    `what` is the request, or "session", "join", "sync" or "load"; `who` the client, or the timer's member."""

    def __init__(self, error: Exception, what: Words | str, who: int) -> None:
        if isinstance(error, InvariantViolation):
            super().__init__(error.invariant, error.why)
        else:
            super().__init__("CoresDoNotFail", repr(error))
        self.what, self.who = what, who

    @property
    def step(self) -> str:
        """In words."""
        if not isinstance(self.what, str):
            return f"{f'client {self.who} is heard' if self.who else 'heard late'}: {is_request(self.what)}"
        if self.what == "load":
            return "a coordinator loads"
        return f"{self.what} timer rings" + (f" (member {self.who})" if self.who else "")


class Steps:
    """The steps of one search. Raises `InvariantViolation` from a step that does not keep an invariant."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.topics = topics(partitions)
        told = {"group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS)}
        self.config = BrokerConfig.load(overrides=list(told.items()))[0].values
        self.group_configs = GroupConfigs(self.config)
        found = [type(made) for made in invariants_of(KINDS)]
        self.invariants = [made for made in found if made in REMINDED or "__init__" not in vars(made)]
        self.left_out = [made for made in found if made not in self.invariants]
        self._known: dict[tuple[Any, ...], Step] = {}
        self._shape: dict[Coordinator, Coordinator] = {}

    def __repr__(self) -> str:
        return f"<steps: {len(self._known)} made>"

    def __len__(self) -> int:
        return len(self._known)

    def ask(self, before: Coordinator, asked: Words, waiter: int, fresh: int) -> Step:
        """A request arrives; `fresh` is the number of a member id that nobody has."""
        key = (before, asked, waiter, fresh)
        return self._known.get(key) or self._make(key, lambda bench: bench.ask(asked, waiter, fresh))

    def ring(self, before: Coordinator, timer: str, member: int = 0) -> Step:
        """A timer rings: "session", "join" or "sync"."""
        key = (before, timer, member)
        return self._known.get(key) or self._make(key, lambda bench: bench.ring(timer, member))

    def load(self, before: Coordinator) -> Step:
        """The coordinator is gone, and another one reads its log."""
        key = (before, "load")
        return self._known.get(key) or self._make(key, lambda bench: bench.load())

    def _make(self, key: tuple[Any, ...], step: Callable[[_Bench], Step]) -> Step:
        """A step that is made for the first time. Equal coordinators become one object."""
        what = key[1]
        try:
            made = step(_Bench(self, key[0]))
        except Exception as error:
            raise ViolatingStep(error, what, key[2] if key[2:] else 0) from error
        made = made._replace(after=self._shape.setdefault(made.after, made.after))
        self._known[key] = made
        return made

    def nothing(self) -> Coordinator:
        """An empty log, loaded."""
        return Coordinator((), (), (-1,) * self.partitions, (), 0, 0, (), 0)


class _Timers:
    """What invariants ask of a coordinator."""

    def __init__(self) -> None:
        self.deadlines: dict[Any, int] = {RETENTION: 1}


class _Clock:
    now_ms = NOW_MS

    def next_ms(self) -> int | None:
        return None


class _Log:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def durable(self) -> int:
        return len(self.batches)


class _Bench:
    """A shard, its shadow and its timers, for one step. Has the names of a `GroupRuntime` that invariants
    use."""

    event_queue = _Clock()
    now_ms = NOW_MS

    def __init__(self, steps: Steps, before: Coordinator) -> None:
        self.before = before
        self.config, self.topics, self._partitions = steps.config, steps.topics, steps.partitions
        self._group_configs = steps.group_configs
        self.core, self.shadow = GroupShard(), GroupShard()
        self.log, self.coordinator = _Log(), _Timers()
        self._names: dict[int, str] = {}
        for record in stored_records(before):
            self.shadow.replay(record)
        for commit in offset_records(before):
            self.core.replay(commit)
            self.shadow.replay(commit)
        if before.group:
            self.core.replay(ClassicGroupSnapshot(live_group(before.group)))
            self._names = {seat.member: member_name(*seat[:2]) for seat in before.group.seats}
        self._arm(before)
        self.kept = {name: group.copy() for name, group in self.core.groups.items()}
        self.undecided: dict[int, Struct] = dict(waiting(before, self._partitions))
        self.invariants = [made() for made in steps.invariants]
        self._observe = observer(self.invariants)
        self._remind()

    def _arm(self, before: Coordinator) -> None:
        armed = self.coordinator.deadlines
        for member in before.sessions:
            armed[session_key(GROUP, self._name(member))] = 1
        if before.join_timer:
            armed[join_key(GROUP)] = 1
        if before.sync_timer:
            armed[sync_key(GROUP)] = 1

    def _name(self, member: int) -> str:
        return self._names.get(member) or member_name(member, 0)

    def _remind(self) -> None:
        """Invariants that remember the past are told of it."""
        before, stored = self.before, self.before.stored
        for invariant in self.invariants:
            if type(invariant) is RequestsAreAnsweredOnce:
                invariant.waiting = set(self.undecided)
            elif type(invariant) is DecisionsAreOneBatch:
                invariant.end = 0
            elif type(invariant) is OffsetsAreTheLastCommitted:
                held = full_view(self.core).offsets
                invariant.expected = {key: entry_of(committed) for key, committed in held.items()}
            elif type(invariant) is AssignmentsComeFromTheLeader and stored:
                invariant.assigned[GROUP, stored.generation] = {
                    f"instance {instance_name(i)}" if i else self._name(m): bits(given)
                    for i, m, given in before.given
                }
            elif type(invariant) is EveryGenerationHasATrace and stored and before.told:
                invariant.traced.add((GROUP, stored.generation))

    # --- the three steps ---

    def ask(self, asked: Words, waiter: int, fresh: int) -> Step:
        api = asked[0]
        request = real_request(asked, self._partitions)
        number = waiter or GHOST
        context = Context(
            NOW_MS,
            self.config,
            number,
            VERSIONS[api],
            CLIENT_ID,
            CLIENT_HOST,
            (str(fresh),),
            self.topics,
            self._group_configs,
            OFFERED,
        )
        event = self._event("request")
        event.api, event.request = type(request).__name__.removesuffix("Request"), request
        event.version, event.client_id, event.waiter = context.api_version, CLIENT_ID, number
        self.undecided[number] = request
        try:
            event.outcome = self.core.handle(request, context)
        except Refusal as refusal:
            event.answer = refusal.error
            return self._done(event, asked, ((number, refused(asked, refusal.error)),))
        event.answered = event.outcome.replies
        event.answer = dict(event.answered).get(number)
        return self._done(event, asked, self._small(event.outcome, asked, number))

    def ring(self, timer: str, member: int) -> Step:
        key = session_key(GROUP, self._name(member)) if timer == "session" else (timer, GROUP)
        del self.coordinator.deadlines[key]
        context = self._nobody_asks()
        event = self._event("timer")
        event.key = key
        event.outcome = self.core.expire(key, context)
        event.answered = event.outcome.replies
        return self._done(event, (0,), self._small(event.outcome, (0,), GHOST))

    def _nobody_asks(self) -> Context:
        return Context(
            NOW_MS, self.config, topics=self.topics, group_configs=self._group_configs, assignors=OFFERED
        )

    def load(self) -> Step:
        ended = full_view(self.core)
        self.core = GroupShard()
        for record in (*stored_records(self.before), *offset_records(self.before)):
            self.core.replay(record)
        self.coordinator = _Timers()
        context = self._nobody_asks()
        outcome = self.core.load(context)
        self.coordinator.deadlines.clear()
        self._carry_out(outcome)
        self.undecided.clear()
        event = Event("loaded", cast("GroupRuntime", self), ended, full_view(self.core), outcome=outcome)
        self._observe(event)
        self.kept = {name: group.copy() for name, group in self.core.groups.items()}
        self._look()
        return Step(self._after(), (), False, False)

    # --- what follows ---

    def _event(self, kind: str) -> Event:
        view = View(dict(self.core.groups), full_view(self.core).offsets)
        return Event(kind, cast("GroupRuntime", self), view, view)

    def _carry_out(self, outcome: Outcome) -> Batch | None:
        """As a coordinator does: records, then soft records, then timers."""
        batch = None
        if outcome.records:
            batch = batch_of(encode_group_record(record) for record in outcome.records)
            self.log.batches.append(batch)
            for record in batch.records:
                self.shadow.replay(record)
        for record in (*outcome.records, *outcome.soft_records):
            self.core.replay(record)
        for timer in outcome.timers:
            if type(timer) is Arm:
                if not (timer.unless_armed and timer.key in self.coordinator.deadlines):
                    self.coordinator.deadlines[timer.key] = timer.after_ms
            else:
                self.coordinator.deadlines.pop(timer.key, None)
        return batch

    def _done(self, event: Event, asked: Words, answers: Iterable[tuple[int, Words]]) -> Step:
        outcome = event.outcome
        if outcome is not None:
            event.batch = self._carry_out(outcome)
            event.changed = bool(outcome.records or outcome.soft_records)
        answered = {waiter for waiter, _ in event.answered}
        if event.answer is not None:
            answered.add(event.waiter)
        for waiter in answered:
            self.undecided.pop(waiter, None)
        if event.changed:
            event.after = full_view(self.core)
        self._observe(event)
        self.kept = {name: group.copy() for name, group in self.core.groups.items()}
        self._look()
        told = dict(answers)
        heard = tuple((waiter, words) for waiter, words in told.items() if waiter < GHOST)
        waits = event.kind == "request" and event.answer is None
        return Step(self._after(), heard, event.batch is not None, waits, told.get(event.waiter, ()))

    def _small(self, outcome: Outcome, asked: Words, number: int) -> tuple[tuple[int, Words], ...]:
        waited = {waiter: _API_OF.get(type(request), 0) for waiter, request in self.undecided.items()}
        return tuple(
            (
                reply.waiter,
                small_answer(asked if reply.waiter == number else (waited[reply.waiter],), reply.response),
            )
            for reply in outcome.replies
            if reply.waiter in waited
        )

    def _look(self) -> None:
        view = full_view(self.core)
        self._observe(Event("audit", cast("GroupRuntime", self), view, view))

    def due_ms(self, key: Any) -> int | None:
        """What was armed in this step has its true distance; the rest rings some time."""
        return self.coordinator.deadlines.get(key)

    # --- back to a value ---

    def _after(self) -> Coordinator:
        group, told = _classic(self.core), _classic(self.shadow)
        armed = self.coordinator.deadlines
        held = self.core.offsets.get(GROUP, {}).get(TOPIC, {})
        offsets = tuple(held[p].offset if p in held else -1 for p in range(self._partitions))
        sessions = sorted(member_number(key[2]) for key in armed if key[0] == "session")
        return Coordinator(
            group=small_group(group) if group is not None else (),
            stored=small_stored(told) if told is not None else (),
            offsets=offsets,
            sessions=tuple(sessions),
            join_timer=int(join_key(GROUP) in armed),
            sync_timer=int(sync_key(GROUP) in armed),
            **_remembered(self.invariants, told),
        )


def _classic(shard: GroupShard) -> ClassicGroup | None:
    group = shard.groups.get(GROUP)
    assert group is None or isinstance(group, ClassicGroup), f"{group!r} where all speak the classic protocol"
    return group


_API_OF: dict[type, int] = {JoinGroupRequest: JOIN, SyncGroupRequest: SYNC}
"""Of requests that wait."""


def _remembered(invariants: list[Invariant], told: ClassicGroup | None) -> dict[str, Any]:
    """What the invariants have to remember of the generation that is stored."""
    if told is None:
        return {"given": (), "told": 0}
    given: dict[str, bytes] = {}
    was_told = told.generation == 0  # The first one there is no cause for.
    for invariant in invariants:
        if type(invariant) is AssignmentsComeFromTheLeader:
            given = invariant.assigned.get((GROUP, told.generation), {})
        elif type(invariant) is EveryGenerationHasATrace:
            was_told |= (GROUP, told.generation) in invariant.traced
    found = []
    for who, what in given.items():
        instance = instance_number(who.removeprefix("instance ")) if who.startswith("instance ") else 0
        found.append((instance, 0 if instance else member_number(who), bits_of(what)))
    return {"given": tuple(found), "told": int(was_told)}
