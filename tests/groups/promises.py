"""The promises of a classic group, each a small class that looks at everything that happens.

`Life` is a `World` that turns each request, each timer, each restart and each failed append into an `Event`:
the state before and after, what was decided, what was answered, what was appended. Every promise of
`PROMISES` looks at every event. The numbers are those of the catalogue of invariants that the project keeps
(G: log and state machine, C: classic groups, ST: static members, O: offsets); `ours` are konvene's own.

Beside the shard that decides lives a shadow, which is given nothing but the bytes of the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.groups import promises_of_groups, promises_of_members
from tests.groups.promise import Event, Promise, in_order, replay_batch, snapshot
from tests.groups.world import World

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.shard.contract import Context, Outcome

COUNTED: Counter[str] = Counter()
"""What all lives together went through: events by kind, answers by API and error, states."""

PROMISES: tuple[type[Promise], ...] = tuple(
    found
    for module in (promises_of_groups, promises_of_members)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Promise) and found is not Promise
)


@dataclass
class Life(World):
    """A world whose every event is held against every promise."""

    fail_append: bool = False
    """The next append fails: who waits is told NOT_COORDINATOR, the shard is loaded again."""
    too_large: bool = False
    """The next batch is refused whole: it does not fit."""
    shadow: GroupShard = field(default_factory=GroupShard)
    prefixes: list[tuple[Any, ...]] = field(default_factory=list)
    """What the shadow held after each batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.promises = [kind() for kind in PROMISES]
        self.now = snapshot(self.shard)
        self.prefixes.append(in_order(self.shadow))
        self._open: dict[str, Any] = {}

    # --- what happens ---

    def ask(
        self, who: str, request: Struct, version: int, *, client_id: str | None = None
    ) -> Struct | Errors | None:
        self._begin("asked", request=request, version=version)
        answer = super().ask(who, request, version, client_id=client_id)
        assert snapshot(self.shard) == self.now or self._open["outcome"] is not None, "a refusal left a trace"
        if self._open["kind"] == "too large":
            self.too_large = False
            answer = self.answers[who]
        elif not isinstance(answer, Errors):
            # What it asked before, on another connection, may have been answered as well.
            answer = dict(self._open.get("answered", ())).get(self.last_waiter)
        self._end(answer)
        return answer

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        while due := sorted((at, repr(key), key) for key, at in self.timers.items() if at <= end):
            at, _, key = due[0]
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            self.happened.append(f"timer {' '.join(key)}")
            self._begin("timer", key=key)
            self.carry_out(self.shard.expire(key, Context(self.now_ms, self.config, topics=self.topics)))
            self._end(None)
        self.now_ms = end

    def restart(self) -> None:
        self._begin("restart")
        super().restart()
        self._end(None)

    def carry_out(self, outcome: Outcome) -> None:
        if self._open["kind"] in ("restart", "append failed"):  # What `load` decided.
            self._open["outcome"] = outcome
            super().carry_out(outcome)
            return
        assert snapshot(self.shard) == self.now, "a decision changed the state"
        if outcome.records and self.fail_append:
            self.fail_append = False
            self._open |= {"kind": "append failed"}
            World.restart(self)
            return
        if outcome.records and self.too_large and self._open["kind"] == "asked":
            self._open |= {"kind": "too large", "outcome": None}
            who = self.waiting.pop(self.last_waiter)
            self.answers[who] = Errors.UNKNOWN_SERVER_ERROR
            return
        before = len(self.log)
        super().carry_out(outcome)
        batch = self.log[-1] if len(self.log) > before else None
        assert len(self.log) - before == bool(outcome.records), "one outcome is one batch"
        if batch is not None:
            replay_batch(self.shadow, batch)
            self.prefixes.append(in_order(self.shadow))
        self._open |= {"outcome": outcome, "batch": batch, "answered": tuple(outcome.replies)}

    def _begin(self, kind: str, **more: Any) -> None:
        self._open = {"kind": kind, "outcome": None, "started_ms": self.now_ms, **more}

    def _end(self, answer: Struct | Errors | None) -> None:
        before, self.now = self.now, snapshot(self.shard)
        event = Event(life=self, before=before, after=self.now, answer=answer, **self._open)
        COUNTED[event.kind] += 1
        for group in self.now.groups.values():
            COUNTED[f"state {group.state}"] += 1
        if event.kind == "asked":
            told = "waits" if event.error is None else event.error.name
            COUNTED[f"{type(event.request).__name__.removesuffix('Request')} {told}"] += 1
        for promise in self.promises:
            promise.after(event)
