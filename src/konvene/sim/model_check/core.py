"""Steps of the production core, from one `Coordinator` value to the next.

`StepCache` builds a `GroupShard` from a `Coordinator`, lets it handle a request, expire a timer or load, and
replays the records of the outcome: into the shard as they are, into a shadow shard from their bytes, as a log
would return them. Then it converts the shard back to a `Coordinator`. The outcome depends on nothing else, so
each distinct step is taken once and cached. A new step is checked against the invariants of `sim.invariants`;
the history of an invariant is restored from the `Coordinator`, which has `leader_assignment` and `has_cause`
for that reason.

As in the runtime, the records of a step are one batch, and responses are sent when that batch is durable,
which is up to the caller. The retention timer is always armed and never expires.

Left out are invariants about durations, because the model has no clock. `_StepRuntime` has the attributes of
a `GroupRuntime` that invariants read; it is no subclass of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
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
    compact_group,
    compact_stored,
    live_group,
    offset_records,
    pending_requests,
    stored_records,
)
from konvene.sim.model_check.values import (
    CLIENT_HOST,
    CLIENT_ID,
    DISCONNECTED_SENDER,
    GROUP,
    INITIAL_DELAY_MS,
    JOIN,
    NOW_MS,
    SYNC,
    TOPIC,
    VERSIONS,
    Coordinator,
    Message,
    assignment_bytes,
    build_request,
    compact_response,
    error_response,
    format_request,
    instance_name,
    instance_number,
    member_name,
    member_number,
    partition_mask,
    topics,
)
from konvene.sim.world.event import Event, Invariant, InvariantViolation, View, full_view

if TYPE_CHECKING:
    from konvene.sim.group_runtime import GroupRuntime

KINDS = ("classic", "static")

RESTORABLE = (
    RequestsAreAnsweredOnce, DecisionsAreOneBatch, OffsetsAreTheLastCommitted, AssignmentsComeFromTheLeader,
    EveryGenerationHasATrace,
)  # fmt: skip
"""Invariants with a history that `_StepRuntime` restores. Other invariants with a history are left out."""


class Step(NamedTuple):
    """The result of a step: the coordinator after it, and the responses."""

    after: Coordinator
    responses: tuple[tuple[int, Message], ...]
    """Response to each waiter that is still connected."""
    has_batch: bool
    """Whether the step wrote a batch."""
    is_pending: bool
    """Whether the request of the step has no response yet."""
    own_response: Message = ()
    """Response to the request of the step, even if its sender is disconnected."""


class ViolatingStep(InvariantViolation):
    """A step that violates an invariant or raises an exception.

    `trigger` is the request that arrived, the name of the timer that expired ("session", "join" or "sync"),
    or "load". `number` is the client that sent the request, or the member of the timer, or 0."""

    def __init__(self, error: Exception, trigger: Message | str, number: int) -> None:
        if isinstance(error, InvariantViolation):
            super().__init__(error.invariant, error.why)
        else:
            super().__init__("CoresDoNotFail", repr(error))
        self.trigger, self.number = trigger, number

    @property
    def step(self) -> str:
        """Return the step as text, such as `join timer expires`."""
        if not isinstance(self.trigger, str):
            event = f"client {self.number}: request arrives" if self.number else "delayed request arrives"
            return f"{event}: {format_request(self.trigger)}"
        if self.trigger == "load":
            return "a coordinator loads"
        return f"{self.trigger} timer expires" + (f" (member {self.number})" if self.number else "")


class StepCache:
    """A cache of the steps of one search. A new step that violates an invariant or fails raises
    `ViolatingStep`."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.topics = topics(partitions)
        overrides = [("group.initial.rebalance.delay.ms", str(INITIAL_DELAY_MS))]
        self.config = BrokerConfig.load(overrides=overrides)[0].values
        self.group_configs = GroupConfigs(self.config)
        classes = [type(invariant) for invariant in invariants_of(KINDS)]
        self.invariants = [each for each in classes if each in RESTORABLE or "__init__" not in vars(each)]
        self.left_out = [each for each in classes if each not in self.invariants]
        self._steps: dict[Hashable, Step] = {}
        self._coordinators: dict[Coordinator, Coordinator] = {}

    def __repr__(self) -> str:
        return f"<StepCache: {len(self._steps)} steps>"

    def __len__(self) -> int:
        return len(self._steps)

    def handle(self, before: Coordinator, request: Message, waiter: int, fresh: int) -> Step:
        """Return the step in which a request arrives. `waiter` is the number of its client; a member id that
        the coordinator creates gets the number `fresh`."""
        key = (before, request, waiter, fresh)
        return self._steps.get(key) or self._take(key, lambda runtime: runtime.handle(request, waiter, fresh))

    def expire(self, before: Coordinator, timer: str, member: int = 0) -> Step:
        """Return the step in which a timer expires: "session" (of `member`), "join" or "sync"."""
        key = (before, timer, member)
        return self._steps.get(key) or self._take(key, lambda runtime: runtime.expire(timer, member))

    def load(self, before: Coordinator) -> Step:
        """Return the step in which a new coordinator loads the log of `before`."""
        key = (before, "load")
        return self._steps.get(key) or self._take(key, lambda runtime: runtime.load())

    def _take(self, key: tuple[Any, ...], run: Callable[[_StepRuntime], Step]) -> Step:
        """Execute a step with `run`, and cache it under `key`. Equal coordinators become one object."""
        try:
            step = run(_StepRuntime(self, key[0]))
        except Exception as error:
            raise ViolatingStep(error, key[1], key[2] if key[2:] else 0) from error
        step = step._replace(after=self._coordinators.setdefault(step.after, step.after))
        self._steps[key] = step
        return step

    def empty_coordinator(self) -> Coordinator:
        """Return a coordinator that loaded an empty log."""
        return Coordinator((), (), (-1,) * self.partitions, (), 0, 0, (), 0)


class _Timers:
    """The armed timers of a step: `deadlines` has their delays in ms by key. A coordinator of the runtime has
    an attribute of that name, which invariants read."""

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


class _StepRuntime:
    """A shard, its shadow and its timers for one step, with the attributes of a `GroupRuntime` that
    invariants read."""

    event_queue = _Clock()
    now_ms = NOW_MS

    def __init__(self, steps: StepCache, before: Coordinator) -> None:
        self.before = before
        self.config, self.topics, self._partitions = steps.config, steps.topics, steps.partitions
        self._group_configs = steps.group_configs
        self.core, self.shadow = GroupShard(), GroupShard()
        self.log, self.coordinator = _Log(), _Timers()
        self._member_names: dict[int, str] = {}
        for record in stored_records(before):
            self.shadow.replay(record)
        for commit in offset_records(before):
            self.core.replay(commit)
            self.shadow.replay(commit)
        if before.group:
            self.core.replay(ClassicGroupSnapshot(live_group(before.group)))
            self._member_names = {m.member: member_name(*m[:2]) for m in before.group.members}
        self._arm(before)
        self.kept = {name: group.copy() for name, group in self.core.groups.items()}
        self.undecided: dict[int, Struct] = dict(pending_requests(before, self._partitions))
        self.invariants = [invariant() for invariant in steps.invariants]
        self._observe = observer(self.invariants)
        self._restore_history()

    def _arm(self, before: Coordinator) -> None:
        armed = self.coordinator.deadlines
        for member in before.sessions:
            armed[session_key(GROUP, self._name(member))] = 1
        if before.join_timer:
            armed[join_key(GROUP)] = 1
        if before.sync_timer:
            armed[sync_key(GROUP)] = 1

    def _name(self, member: int) -> str:
        return self._member_names.get(member) or member_name(member, 0)

    def _restore_history(self) -> None:
        """Set the history of the `RESTORABLE` invariants from the coordinator value."""
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
                    f"instance {instance_name(i)}" if i else self._name(m): assignment_bytes(mask)
                    for i, m, mask in before.leader_assignment
                }
            elif type(invariant) is EveryGenerationHasATrace and stored and before.has_cause:
                invariant.traced.add((GROUP, stored.generation))

    # --- steps ---

    def handle(self, request: Message, waiter: int, fresh: int) -> Step:
        api = request[0]
        message = build_request(request, self._partitions)
        number = waiter or DISCONNECTED_SENDER
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
        event.api, event.request = type(message).__name__.removesuffix("Request"), message
        event.version, event.client_id, event.waiter = context.api_version, CLIENT_ID, number
        self.undecided[number] = message
        try:
            event.outcome = self.core.handle(message, context)
        except Refusal as refusal:
            event.answer = refusal.error
            return self._finish(event, ((number, error_response(request, refusal.error)),))
        event.answered = event.outcome.replies
        event.answer = dict(event.answered).get(number)
        return self._finish(event, self._responses(event.outcome, request, number))

    def expire(self, timer: str, member: int) -> Step:
        key = session_key(GROUP, self._name(member)) if timer == "session" else (timer, GROUP)
        del self.coordinator.deadlines[key]
        context = self._timer_context()
        event = self._event("timer")
        event.key = key
        event.outcome = self.core.expire(key, context)
        event.answered = event.outcome.replies
        return self._finish(event, self._responses(event.outcome, (0,), DISCONNECTED_SENDER))

    def _timer_context(self) -> Context:
        return Context(
            NOW_MS, self.config, topics=self.topics, group_configs=self._group_configs, assignors=OFFERED
        )

    def load(self) -> Step:
        before = full_view(self.core)
        self.core = GroupShard()
        for record in (*stored_records(self.before), *offset_records(self.before)):
            self.core.replay(record)
        self.coordinator = _Timers()
        context = self._timer_context()
        outcome = self.core.load(context)
        self.coordinator.deadlines.clear()
        self._apply(outcome)
        self.undecided.clear()
        event = Event("loaded", cast("GroupRuntime", self), before, full_view(self.core), outcome=outcome)
        self._observe(event)
        self.kept = {name: group.copy() for name, group in self.core.groups.items()}
        self._audit()
        return Step(self._value(), (), False, False)

    # --- effects of an outcome ---

    def _event(self, kind: str) -> Event:
        view = View(dict(self.core.groups), full_view(self.core).offsets)
        return Event(kind, cast("GroupRuntime", self), view, view)

    def _apply(self, outcome: Outcome) -> Batch | None:
        """Apply the records, the soft-state records and the timers of an outcome; return its batch."""
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

    def _finish(self, event: Event, answers: Iterable[tuple[int, Message]]) -> Step:
        outcome = event.outcome
        if outcome is not None:
            event.batch = self._apply(outcome)
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
        self._audit()
        responses = dict(answers)
        connected = tuple(
            (waiter, response) for waiter, response in responses.items() if waiter < DISCONNECTED_SENDER
        )
        is_pending = event.kind == "request" and event.answer is None
        own_response = responses.get(event.waiter, ())
        return Step(self._value(), connected, event.batch is not None, is_pending, own_response)

    def _responses(self, outcome: Outcome, request: Message, number: int) -> tuple[tuple[int, Message], ...]:
        """Return the responses of an outcome by waiter, without those for waiters that have no pending
        request. Waiter `number` sent `request`."""
        pending_apis = {waiter: _API_OF.get(type(request), 0) for waiter, request in self.undecided.items()}
        return tuple(
            (
                reply.waiter,
                compact_response(
                    request if reply.waiter == number else (pending_apis[reply.waiter],), reply.response
                ),
            )
            for reply in outcome.replies
            if reply.waiter in pending_apis
        )

    def _audit(self) -> None:
        view = full_view(self.core)
        self._observe(Event("audit", cast("GroupRuntime", self), view, view))

    def due_ms(self, key: Hashable) -> int | None:
        """Return the delay with which a timer was armed in this step, or None if it is not armed.

        Timers of earlier steps return 1, since the model does not track the remaining time."""
        return self.coordinator.deadlines.get(key)

    # --- conversion to a value ---

    def _value(self) -> Coordinator:
        group, replayed = _classic(self.core), _classic(self.shadow)
        armed = self.coordinator.deadlines
        committed = self.core.offsets.get(GROUP, {}).get(TOPIC, {})
        offsets = tuple(committed[p].offset if p in committed else -1 for p in range(self._partitions))
        sessions = sorted(member_number(key[2]) for key in armed if key[0] == "session")
        return Coordinator(
            group=compact_group(group) if group is not None else (),
            stored=compact_stored(replayed) if replayed is not None else (),
            offsets=offsets,
            sessions=tuple(sessions),
            join_timer=int(join_key(GROUP) in armed),
            sync_timer=int(sync_key(GROUP) in armed),
            **_history(self.invariants, replayed),
        )


def _classic(shard: GroupShard) -> ClassicGroup | None:
    group = shard.groups.get(GROUP)
    assert group is None or isinstance(group, ClassicGroup), f"{group!r} is not a classic group"
    return group


_API_OF: dict[type, int] = {JoinGroupRequest: JOIN, SyncGroupRequest: SYNC}
"""APIs whose requests can be pending."""


def _history(invariants: list[Invariant], stored: ClassicGroup | None) -> dict[str, Any]:
    """Return `leader_assignment` and `has_cause` of a `Coordinator`: what the invariants recorded of the
    stored generation."""
    if stored is None:
        return {"leader_assignment": (), "has_cause": 0}
    assignments: dict[str, bytes] = {}
    has_cause = stored.generation == 0  # Generation 0 has no cause.
    for invariant in invariants:
        if type(invariant) is AssignmentsComeFromTheLeader:
            assignments = invariant.assigned.get((GROUP, stored.generation), {})
        elif type(invariant) is EveryGenerationHasATrace:
            has_cause |= (GROUP, stored.generation) in invariant.traced
    leader_assignment = []
    for owner, assignment in assignments.items():
        instance = instance_number(owner.removeprefix("instance ")) if owner.startswith("instance ") else 0
        member = 0 if instance else member_number(owner)
        leader_assignment.append((instance, member, partition_mask(assignment)))
    return {"leader_assignment": tuple(leader_assignment), "has_cause": int(has_cause)}
