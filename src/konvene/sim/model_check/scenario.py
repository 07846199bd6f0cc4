"""A way through the model as a scenario: the commands that make the same steps (`docs/scenarios.md`).

Played, it makes the same requests, timers and deaths of the coordinator on a whole coordinator with its log,
and it ends where the invariant is violated. What only a client notices stands there as a remark. A request
that comes late, or that nobody hears the answer of, is sent by `late`.

What is not said in a scenario is not the same: there every client has a client id of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

from konvene.sim.model_check.core import ViolatingStep
from konvene.sim.model_check.model import Model, Move, fresh, highest
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
    State,
    Words,
    instance_name,
)

LATE = "late"


def scenario(
    model: Model, way: Iterable[tuple[State, Move, str]], last: State, wrong: ViolatingStep | None
) -> str:
    """The commands of a way: each state with the move that leaves it and its sentence, then the last step."""
    writer = _Writer(model)
    for state, move, sentence in way:
        writer.move(state, move, sentence)
    if wrong is not None:
        writer.step(last, wrong)
    return "\n".join(writer.lines) + "\n"


class _Writer:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.lines = [
            f"config group.initial.rebalance.delay.ms={INITIAL_DELAY_MS}",
            f"topic {TOPIC} partitions={model.partitions}",
        ]
        self._ids: dict[int, str] = {}
        self._made: Counter[str] = Counter()

    def move(self, state: State, move: Move, sentence: str) -> None:
        self.lines.append(f"# {sentence}")
        what = move.what
        if "timer" in what:
            self._expire(what.partition(" ")[0], move.who)
        elif what.startswith(("heard late", "is heard", "sends")):
            if what.endswith("dies, heard later"):
                return
            if "before it is durable" in what:
                self.lines.append("hold")
            self._ask(state, move.said, move.who)
            if "before it is durable" in what:
                self.lines += ["crash", "durable"]
            elif "when it is durable" in what:
                self.lines.append("restart")
        elif what.startswith("coordinator dies"):
            self.lines.append("restart")

    def step(self, state: State, wrong: ViolatingStep) -> None:
        """The step that was wrong."""
        self.lines.append(f"# {wrong.step}")
        if isinstance(wrong.what, str):
            if wrong.what == "load":
                self.lines.append("restart")
            else:
                self._expire(wrong.what, wrong.who)
        else:
            self._ask(state, wrong.what, wrong.who)

    def _expire(self, timer: str, member: int) -> None:
        self.lines.append(f"expire {timer} g {self._id(member)}" if member else f"expire {timer} g")

    def _id(self, member: int) -> str:
        return self._ids.get(member, "-")

    def _ask(self, state: State, asked: Words, number: int) -> None:
        api, who = asked[0], f"c{number}" if number else LATE
        if api == FETCH:
            self.lines.append(f"fetch {who}")
            return
        member, instance = asked[1:3]
        stem = instance_name(instance)
        same = f"member={self._id(member)} instance={stem or '-'}"
        if api == JOIN:
            times = f"session={SESSION_MS} rebalance={REBALANCE_MS}"
            self.lines.append(f"join {who} {same} {times} protocols={PROTOCOL}:{quote_from_bytes(METADATA)}")
            if not member:
                self._make(state, asked, number, stem or who)
        elif api == SYNC:
            given = ",".join(f"{self._id(m)}:%{max(what, 0):02x}" for m, _, what in asked[4])
            assign = f" assign={given}" if given else ""
            self.lines.append(f"sync {who} {same} generation={asked[3]}{assign}")
        elif api == HEARTBEAT:
            self.lines.append(f"heartbeat {who} {same} generation={asked[3]}")
        elif api == COMMIT:
            where = f"{TOPIC}-{asked[4]}:{asked[5]}"
            self.lines.append(f"commit {who} {where} {same} generation={asked[3]}")
        elif api == LEAVE:
            self.lines.append(f"leave {who} {same}")

    def _make(self, state: State, asked: Words, number: int, stem: str) -> None:
        """A member id was made, or would have been."""
        new = fresh(state)
        try:
            made = highest(self.model.steps.ask(state.coordinator, asked, number, new).after) == new
        except ViolatingStep:
            return
        if made:
            self._made[stem] += 1
            self._ids[new] = f"{stem}-{self._made[stem]}"
