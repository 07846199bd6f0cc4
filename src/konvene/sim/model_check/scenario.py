"""Export of a path through the model as a scenario that takes the same steps (`docs/scenarios.md`).

The scenario sends the same requests, expires the same timers and restarts the coordinator at the same moments
on a complete coordinator with a log, up to the violation of the invariant. Moves that only concern clients
become comments. Delayed requests and requests of disconnected clients are sent by the client `late`.

One difference: in a scenario each client has its own client id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

from konvene.sim.model_check.core import ViolatingStep
from konvene.sim.model_check.model import (
    ARRIVES,
    ARRIVES_LATE,
    ARRIVES_STORED,
    ARRIVES_TWICE,
    ARRIVES_UNSTORED,
    COORDINATOR_CRASHES,
    COORDINATOR_CRASHES_AND_DISCONNECTS,
    SENDS,
    SENDS_TWICE,
    Model,
    Move,
    fresh_member,
    highest_member,
    is_timer,
)
from konvene.sim.model_check.values import (
    COMMIT,
    FETCH,
    HEARTBEAT,
    INITIAL_DELAY_MS,
    JOIN,
    LEAVE,
    METADATA,
    PROTOCOL,
    REBALANCE_MS,
    SESSION_MS,
    SYNC,
    TOPIC,
    Message,
    State,
    instance_name,
)

LATE = "late"
"""Client that sends delayed requests."""

_SENDING = (
    ARRIVES, ARRIVES_TWICE, ARRIVES_UNSTORED, ARRIVES_STORED, ARRIVES_LATE, SENDS, SENDS_TWICE,
)  # fmt: skip
"""Moves in which a request arrives."""


def scenario(
    model: Model, path: Iterable[tuple[State, Move, str]], last: State, violation: ViolatingStep | None
) -> str:
    """Return a scenario file for a path. `path` has each state, the move that leaves it and its text; `last`
    is the state after them, and `violation` the step of that state that violates an invariant, if any."""
    writer = _Writer(model)
    for state, move, text in path:
        writer.add_move(state, move, text)
    if violation is not None:
        writer.add_violation(last, violation)
    return "\n".join(writer.lines) + "\n"


class _Writer:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.lines = [
            f"config group.initial.rebalance.delay.ms={INITIAL_DELAY_MS}",
            f"topic {TOPIC} partitions={model.partitions}",
        ]
        self._ids: dict[int, str] = {}
        self._created: Counter[str] = Counter()
        """Number of member ids created so far, by the stem of their names."""

    def add_move(self, state: State, move: Move, text: str) -> None:
        self.lines.append(f"# {text}")
        if is_timer(move):
            self._expire(move.label.partition(" ")[0], move.number)
        elif move.label in _SENDING:
            if move.label == ARRIVES_UNSTORED:
                self.lines.append("hold")
            self._send(state, move.message, move.number)
            if move.label == ARRIVES_UNSTORED:
                self.lines += ["crash", "durable"]
            elif move.label == ARRIVES_STORED:
                self.lines.append("restart")
        elif move.label in (COORDINATOR_CRASHES, COORDINATOR_CRASHES_AND_DISCONNECTS):
            self.lines.append("restart")

    def add_violation(self, state: State, violation: ViolatingStep) -> None:
        self.lines.append(f"# {violation.step}")
        if isinstance(violation.trigger, str):
            if violation.trigger == "load":
                self.lines.append("restart")
            else:
                self._expire(violation.trigger, violation.number)
        else:
            self._send(state, violation.trigger, violation.number)

    def _expire(self, timer: str, member: int) -> None:
        self.lines.append(f"expire {timer} g {self._id(member)}" if member else f"expire {timer} g")

    def _id(self, member: int) -> str:
        return self._ids.get(member, "-")

    def _send(self, state: State, request: Message, number: int) -> None:
        api, client = request[0], f"c{number}" if number else LATE
        if api == FETCH:
            self.lines.append(f"fetch {client}")
            return
        member, instance = request[1:3]
        stem = instance_name(instance)
        identity = f"member={self._id(member)} instance={stem or '-'}"
        if api == JOIN:
            times = f"session={SESSION_MS} rebalance={REBALANCE_MS}"
            self.lines.append(
                f"join {client} {identity} {times} protocols={PROTOCOL}:{quote_from_bytes(METADATA)}"
            )
            if not member:
                self._add_member_id(state, request, number, stem or client)
        elif api == SYNC:
            assignments = ",".join(f"{self._id(m)}:%{max(mask, 0):02x}" for m, _, mask in request[4])
            assign = f" assign={assignments}" if assignments else ""
            self.lines.append(f"sync {client} {identity} generation={request[3]}{assign}")
        elif api == HEARTBEAT:
            self.lines.append(f"heartbeat {client} {identity} generation={request[3]}")
        elif api == COMMIT:
            offset = f"{TOPIC}-{request[4]}:{request[5]}"
            self.lines.append(f"commit {client} {offset} {identity} generation={request[3]}")
        elif api == LEAVE:
            self.lines.append(f"leave {client} {identity}")

    def _add_member_id(self, state: State, request: Message, number: int, stem: str) -> None:
        """If the coordinator creates a member id for this JoinGroup request, name it `stem`-1, `stem`-2, …"""
        new = fresh_member(state)
        try:
            after = self.model.steps.handle(state.coordinator, request, number, new).after
        except ViolatingStep:
            return
        if highest_member(after) == new:
            self._created[stem] += 1
            self._ids[new] = f"{stem}-{self._created[stem]}"
