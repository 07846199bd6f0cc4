"""The group coordinator in virtual time; see `konvene.sim.runtime`.

An event contains the state, before and after, of those groups and offsets that its request and its records
concern. Modern groups are changed in place, so the runtime keeps a private copy of each: the copy is the
state before an event, and reveals decisions that change a group without a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from konvene.codec.uuid import Uuid
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.shard import GroupShard, group_of
from konvene.records.classic import GroupMetadataKey
from konvene.records.commits import OffsetCommitted
from konvene.records.transactional import InTransaction
from konvene.runtime.deferred import Deferred
from konvene.shard.contract import Context, Outcome
from konvene.shard.image import Topic, Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import GROUP_SERDE, Journal, Log
from konvene.sim.runtime import COMPLETION, REQUEST, TIMER, ShardRuntime, SimulatedPorts
from konvene.sim.world.event import (
    EMPTY_VIEW,
    MODERN_GROUP_TYPES,
    Event,
    InvariantViolation,
    OffsetKey,
    View,
    full_view,
)

if TYPE_CHECKING:
    from konvene.groups.group_type import Group

TOPICS = Topics(
    [Topic("orders", Uuid(b"orders".ljust(16, b"-")), 6), Topic("audit", Uuid(b"audit".ljust(16, b"-")), 2)]
)
"""Topics of the cluster by default."""

Touched = tuple[tuple[str, ...], tuple[OffsetKey, ...]]
"""Ids of the groups, and keys of the offsets, that a decision names."""


class GroupRuntime(ShardRuntime[Event, View]):
    """A group coordinator in virtual time, with its log and a shadow: a shard that replays only the log.

    `at_once` makes each append durable immediately."""

    name = "sim"
    core: GroupShard
    shadow: GroupShard

    def __init__(
        self,
        event_queue: EventQueue,
        ports: SimulatedPorts,
        *,
        log: Log | None = None,
        at_once: bool = True,
    ) -> None:
        self.kept: dict[str, Group] = {}
        """A private copy of each group."""
        self.undecided: dict[int, object] = {}
        """Requests that the shard has received and not answered yet, by waiter."""
        self._unanswered: set[int] = set()
        """Waiters whose response has not left, because it is not decided or not durable."""
        self._touched: Touched = ((), ())
        super().__init__(
            event_queue,
            replace(ports, assignors=OFFERED),
            journal=Journal(log if log is not None else Log(), at_once),
            serde=GROUP_SERDE,
            empty=EMPTY_VIEW,
        )

    @property
    def group_configs(self) -> GroupConfigs:
        """The effective configs of every group, as the coordinator reads them."""
        return self.coordinator.group_configs

    @property
    def now_ms(self) -> int:
        """The wall-clock time in ms that decisions see."""
        return self.event_queue.wall_clock_ms()

    @property
    def timers(self) -> Mapping[Any, int]:
        """Deadline of each armed timer, in milliseconds of the event queue."""
        return {key: round(at * 1000) for key, at in self.coordinator.deadlines.items()}

    def due_ms(self, key: tuple[str, ...]) -> int | None:
        """Return the time in ms until a timer expires; None if it is not armed."""
        at = self.coordinator.deadlines.get(key)
        return None if at is None else round(at * 1000) - self.event_queue.now_ms

    # --- operation ---

    def succeeds(self, old: GroupRuntime, lost: int) -> None:
        """Make this runtime the successor of `old`, a process that ended; the log lost its last `lost`
        batches then.

        The event of the next load contains the last state of `old` and the number of lost batches."""
        self.ended, self.lost = old.last_state(), old.lost + lost

    def submitted(self, state: str, waiter: int, response: Deferred[Any]) -> None:
        if not waiter:
            response.listen(lambda answer: self._check_rejection(state, answer))
        self._unanswered.add(waiter)

    def _check_rejection(self, state: str, answer: object) -> None:
        """L7: check the answer of a coordinator that is not active: COORDINATOR_LOAD_IN_PROGRESS while it is
        loading, else NOT_COORDINATOR."""
        loads = state == "loading"
        expected = Errors.COORDINATOR_LOAD_IN_PROGRESS if loads else Errors.NOT_COORDINATOR
        if state == "active" or answer is not expected:
            why = f"a coordinator in state {state} answers {answer!r} without a decision"
            self.failed(InvariantViolation("UnavailableCoordinatorsRejectRequests", why))

    def released(self, waiter: int) -> None:
        self._unanswered.discard(waiter)

    def complete_sync(self, but: int = 0) -> None:
        """Make the appended batches durable, except the last `but`, and send the responses that waited for
        them.

        G12: no response is held unless a sync is running or about to start."""
        if self.journal.online:
            self.log.durable = max(self.log.durable, len(self.log.batches) - but)
            self._end_sync(None)
            if self._release_positions and not (self.sync_pending or self.coordinator.lingers):
                why = f"{len(self._release_positions)} responses wait for the disk, but no sync is pending"
                raise InvariantViolation("ResponsesWaitForDurability", why)

    def audit(self) -> None:
        """Report an event that contains all groups and offsets of the shard, so that invariants check all of
        them."""
        self.finish()
        if self.is_active:
            view = full_view(self.core)
            self.report(Event("audit", self, view, view))
            self.finish()

    # --- decisions ---

    def new_shard(self) -> GroupShard:
        return GroupShard()

    def current_state(self) -> View:
        return full_view(self.core)

    def deciding(self, request: object, context: Context) -> None:
        self.undecided[context.waiter] = request

    def new_event(
        self, kind: str, subject: Any, context: Context, outcome: Outcome | None, refused: Errors | None
    ) -> Event:
        self._touched = touched = _touched(None if kind == TIMER else subject, outcome, self.log)
        event = Event(kind, self, self._view_before(touched), EMPTY_VIEW, outcome=outcome)
        if outcome is not None:
            event.answered = outcome.replies
        if kind == REQUEST:
            event.api = type(subject).__name__.removesuffix("Request")
            event.request, event.version, event.client_id = subject, context.api_version, context.client_id
            event.context, event.waiter = context, context.waiter
            event.answer = refused if refused is not None else dict(event.answered).get(context.waiter)
        elif kind == COMPLETION:
            event.key = ("completion", type(subject).__name__)
            event.news, event.context = subject, context
        else:
            event.key = subject
        return event

    def new_load_event(self, outcome: Outcome) -> Event:
        return Event("loaded", self, self.ended, EMPTY_VIEW, outcome=outcome, lost=self.lost)

    def check_reload(self) -> None:
        """G12: check, when the log is loaded again, that all requests submitted before have a response."""
        if self._unanswered:
            why = f"the shard is loaded again, but {len(self._unanswered)} requests have no response"
            self.failed(InvariantViolation("EveryRequestIsAnswered", why))

    def reset(self) -> None:
        self.undecided.clear()

    def append_failed(self, event: Event, how: str) -> None:
        event.outcome, event.answered = None, ()
        if how == "append failed":
            event.kind, event.answer = how, None
            self.ended = full_view(self.core)
            self.undecided.clear()
        elif event.request is not None:
            event.kind, event.answer = how, self.journal.refused or Errors.UNKNOWN_SERVER_ERROR

    def note_responses(self, event: Event) -> None:
        end = len(self.log.batches)
        waiters = [waiter for waiter, _ in event.answered]
        if event.answer is not None:
            waiters.append(event.waiter)
        for waiter in waiters:
            if self.undecided.pop(waiter, None) is not None:
                self._release_positions[waiter] = end, 0

    def end(self, event: Event) -> None:
        if event.kind == "loaded":
            event.after = full_view(self.core)
            self.report(event)
            self.kept = {name: group.copy() for name, group in self.core.groups.items()}
            return
        outcome = event.outcome
        event.changed = outcome is not None and bool(
            outcome.records or outcome.soft_records or outcome.ending is not None
        )
        event.after = self._view(self._touched) if event.changed else event.before
        self.report(event)
        if event.changed:
            self._copy_groups(event)

    def _copy_groups(self, event: Event) -> None:
        for name, group in event.after.groups.items():
            if group is not event.before.groups.get(name):
                self.kept[name] = group.copy()
        for name in event.before.groups:
            if name not in event.after.groups:
                self.kept.pop(name, None)

    def _view_before(self, touched: Touched) -> View:
        """Return the groups and offsets in `touched` as they are before the records of the decision are
        replayed.

        It is a violation if a modern group differs from its private copy."""
        view = self._view(touched)
        groups = dict(view.groups)
        for name, group in view.groups.items():
            if isinstance(group, MODERN_GROUP_TYPES):
                groups[name] = known = self.kept.get(name)
                if known != group:
                    why = f"group {name} was changed without a record: {known!r} is {group!r}"
                    self.failed(InvariantViolation("DecisionsChangeNothing", why))
        return View(groups, view.offsets)

    def _view(self, touched: Touched) -> View:
        """Return the groups and offsets in `touched` as they are in the shard now, without those that do not
        exist."""
        group_ids, keys = touched
        groups, offsets = self.core.groups, self.core.offsets
        found = {}
        for key in keys:
            committed = offsets.get(key[0], {}).get(key[1], {}).get(key[2])
            if committed is not None:
                found[key] = committed
        return View({name: groups[name] for name in group_ids if name in groups}, found)


def _touched(subject: object, outcome: Outcome | None, log: Log) -> Touched:
    """Return the groups and offsets that a request and its outcome concern.

    A transaction that ends concerns the offsets that were committed in it."""
    names: dict[str, None] = {}
    keys: list[OffsetKey] = []
    group_id = getattr(subject, "group_id", None)
    if group_id is not None:
        names[group_id] = None
    if outcome is not None:
        for record in outcome.records:
            if type(record) is OffsetCommitted:
                names[record.group] = None
                keys.append((record.group, record.topic, record.partition))
            else:
                names[_group_id_of(record.key)] = None
        if outcome.ending is not None:
            for record in _pending_commits(outcome.ending.producer_id, log):
                names[record.group] = None
                keys.append((record.group, record.topic, record.partition))
        for record in outcome.soft_records:
            names[group_of(record)] = None
    return tuple(names), tuple(keys)


def _pending_commits(producer_id: int, log: Log) -> Iterator[OffsetCommitted]:
    """Yield the offset commits in the open transaction of a producer."""
    producer = log.producers.by_id.get(producer_id)
    if producer is not None and producer.transaction_start is not None:
        for batch in log.batches[producer.transaction_start :]:
            for record in batch.records:
                if type(record) is InTransaction and record.producer_id == producer_id:
                    yield record.record


def _group_id_of(key: Any) -> str:
    """Return the id of the group that a record key belongs to."""
    group_id: str = key.group if isinstance(key, GroupMetadataKey) else key.group_id
    return group_id
