"""The share coordinator in virtual time; see `konvene.sim.runtime`.

The coordinator deletes the records that its state does not need from the beginning of its log. Each time,
what is left must still replay to the current state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from konvene.errors import Errors
from konvene.records.coordinator import SHARE_STATE_RECORDS, decode_record
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import Deferred
from konvene.shard.contract import Context, Effect, Outcome
from konvene.share_state.pruning import DELETE_RECORDS
from konvene.share_state.requests import Answer, SharePartitionKey, StateAnswer, SummaryAnswer
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import SharePartitionState
from konvene.sim.event_queue import EventQueue
from konvene.sim.journal import Batch
from konvene.sim.runtime import REQUEST, ShardRuntime, SimulatedPorts, replay
from konvene.sim.share.state_log import SHARE_STATE_SERDE, StateJournal, StateLog
from konvene.sim.world.event import InvariantViolation

UPDATES = "share.coordinator.snapshot.update.records.per.snapshot"

States = Mapping[SharePartitionKey, SharePartitionState]


def in_log(state: SharePartitionState) -> SharePartitionState:
    """Return a state reduced to what a replay of a log whose beginning was deleted can restore.

    That is all, except the highest epochs ever seen and the number of updates since the snapshot."""
    return state._replace(highest_state_epoch=0, highest_leader_epoch=0, updates=0)


def _decode(key: bytes | None, value: bytes | None) -> object:
    return decode_record(key or b"", value, SHARE_STATE_RECORDS)


@dataclass(slots=True)
class StateEvent:
    """An event of the share coordinator: a decision or a load, with the state before and after.

    `kind` is as in `konvene.sim.world.event.Event`."""

    kind: str
    runtime: ShareStateRuntime
    before: States
    after: States
    request: object = None
    """The request, the completion, or the key of the timer."""
    answer: Answer | StateAnswer | SummaryAnswer | None = None
    batch: Batch | None = None
    waiter: int = 0
    lost: int = 0
    """Number of batches that the log lost before it was loaded."""
    outcome: Outcome | None = None


class ShareStateRuntime(ShardRuntime[StateEvent, States]):
    """A share coordinator in virtual time, with its log and a shadow: a shard that replays only the log.

    It does not raise its failure; its owner reads `failure` after each step."""

    name = "share state"
    refuses_requests = False
    log: StateLog
    core: ShareStateShard
    shadow: ShareStateShard

    def __init__(
        self,
        event_queue: EventQueue,
        ports: SimulatedPorts,
        *,
        log: StateLog,
    ) -> None:
        self.updates: int = ports.config()[UPDATES]
        """Maximum number of updates between two snapshots."""
        self.kept: States = {}
        """A private copy of all states, as of the last event."""
        self._waiting: dict[Deferred[Any], None] = {}
        """Responses that did not leave; NOT_COORDINATOR when the process dies."""
        super().__init__(
            event_queue,
            replace(ports, perform=self._delete_records),
            journal=StateJournal(log, at_once=False, decode=_decode),
            serde=SHARE_STATE_SERDE,
            empty={},
        )

    # --- operation ---

    def die(self) -> None:
        super().die()
        waiting, self._waiting = self._waiting, {}
        for response in waiting:
            response.resolve(Errors.NOT_COORDINATOR)

    def submit(self, request: object, call: RequestContext) -> Deferred[Any]:
        """Submit a request and return its pending response, as `Coordinator.submit` does."""
        response: Deferred[Any] = Deferred()
        self._waiting[response] = None
        self.ask(request, call, lambda answer: self._resolve(response, answer))
        return response

    def _resolve(self, response: Deferred[Any], answer: object) -> None:
        self._waiting.pop(response, None)
        response.resolve(answer)

    def finish(self) -> None:
        self.end_event()

    def _delete_records(self, effect: Effect) -> None:
        """Perform the coordinator's request to delete the beginning of its log. SH10: check that the
        remaining records replay to the current state."""
        assert effect.verb == DELETE_RECORDS
        removed = self.log.lose_beginning(effect.subject)
        positions = self._release_positions
        self._release_positions = {
            waiter: (durable - removed, written) for waiter, (durable, written) in positions.items()
        }
        self.journal.sync_end -= removed
        left = replay(self.log.batches, self.new_shard())
        current = {key: in_log(state) for key, state in self.core.states.items()}
        replayed = {key: in_log(state) for key, state in left.states.items()}
        if replayed != current:
            why = f"the log from offset {effect.subject} on holds {replayed}, the state is {current}"
            self.failed(InvariantViolation("DeletedRecordsAreRedundant", why))

    # --- decisions ---

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(self.updates)

    def current_state(self) -> States:
        return dict(self.core.states)

    def new_event(
        self, kind: str, subject: object, context: Context, outcome: Outcome | None, refused: Errors | None
    ) -> StateEvent:
        if self.core.states != self.kept:
            self.failed(
                InvariantViolation("ShareStateChangesByRecords", f"{subject}: changed without a record")
            )
        answer = (
            dict(outcome.replies).get(context.waiter) if outcome is not None and kind == REQUEST else None
        )
        return StateEvent(kind, self, self.kept, {}, subject, answer, waiter=context.waiter, outcome=outcome)

    def new_load_event(self, outcome: Outcome) -> StateEvent:
        return StateEvent("loaded", self, self.ended, {}, lost=self.lost)

    def append_failed(self, event: StateEvent, how: str) -> None:
        event.kind = how
        if how == "append failed":
            self.ended = self.kept

    def note_responses(self, event: StateEvent) -> None:
        if event.waiter and event.kind == REQUEST:
            self._release_positions[event.waiter] = len(self.log.batches), 0

    def end(self, event: StateEvent) -> None:
        self.kept = event.after = self.current_state()
        self.report(event)
