"""A coordinator for hand-over scenarios: the production shard with a log in memory, timers and a clock.

It handles one request at a time, every record is durable at once, and there is no network. It takes a tenth
of the time of `sim.transcript.sandbox`, which checks all invariants. Both have the same interface, and a run
is the same on either (`tests/sim/handovers/test_handovers.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.groups.assignors import OFFERED
from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.groups.shard import GroupShard
from konvene.groups.streams.assignors import TASK_ASSIGNORS
from konvene.groups.streams.group import StreamsGroup
from konvene.shard.contract import Arm, Context, Outcome
from konvene.shard.image import Topic, Topics

__all__ = ["Coordinator", "Host", "topics_of"]

START_MS = 1_000_000


class Coordinator(Protocol):
    """The interface that a scenario needs of a simulated coordinator; `Host` and
    `sim.transcript.sandbox.Sandbox` implement it."""

    topics: Topics

    @property
    def shard(self) -> GroupShard: ...

    @property
    def now_ms(self) -> int: ...

    def ask(self, client_id: str, request: Struct, version: int) -> Any:
        """Send a request of this client in this version, and return the response."""

    def advance(self, ms: int) -> None:
        """Advance the time by `ms`, and fire the timers that are due by then."""

    def restart(self) -> None:
        """Restart the coordinator: replace the shard by one that is loaded from the log."""

    def set_config(self, *changes: tuple[str, str]) -> None:
        """Change broker settings, given as pairs of name and value."""


class Host:
    """A minimal implementation of `Coordinator`: the production shard with a log in memory, timers and a
    clock."""

    def __init__(
        self, settings: Mapping[str, str], assignors: Mapping[str, TaskAssignor] = TASK_ASSIGNORS
    ) -> None:
        self.topics = Topics([])
        self.now_ms = START_MS
        self.shard = GroupShard()
        self._settings, self._assignors = dict(settings), assignors
        self._log: list[object] = []
        self._due: dict[Any, int] = {}
        self._earliest_ms = 0
        """Lower bound of all deadlines; most timers are re-armed before they expire."""
        self._requests = 0
        self.set_config()

    def __repr__(self) -> str:
        return f"<host at {self.now_ms} ms: {len(self._log)} records, {len(self._due)} timers>"

    def set_config(self, *changes: tuple[str, str]) -> None:
        self._settings |= dict(changes)
        self._config, _ = BrokerConfig.load(overrides=list(self._settings.items()))
        self._group_configs = GroupConfigs(self._config)

    def ask(self, client_id: str, request: Struct, version: int) -> Any:
        self._requests += 1
        outcome = self.shard.handle(request, self._context(self._requests, client_id, version))
        self._apply(outcome)
        return next(reply.response for reply in outcome.replies if reply.waiter == self._requests)

    def advance(self, ms: int) -> None:
        until = self.now_ms + ms
        while self._earliest_ms <= until:
            at, key = min(((at, key) for key, at in self._due.items()), default=(until + 1, ()))
            self._earliest_ms = at
            if at <= until:
                self.now_ms = max(self.now_ms, at)
                del self._due[key]
                self._apply(self.shard.expire(key, self._context()))
        self.now_ms = until

    def restart(self) -> None:
        self.shard = GroupShard()
        self._due.clear()
        for record in self._log:
            self.shard.replay(record)
        self._apply(self.shard.load(self._context()))

    def _context(self, waiter: int = 0, client_id: str = "", version: int = 0) -> Context:
        return Context(
            self.now_ms, self._config, waiter, version, client_id, "/127.0.0.1", (f"fresh-{self._requests}",),
            self.topics, self._group_configs, OFFERED, self._assignors,
        )  # fmt: skip

    def _apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self._log.append(record)
            self.shard.replay(record)
        for record in outcome.soft_records:
            self.shard.replay(record)
        for timer in outcome.timers:
            if not isinstance(timer, Arm):
                self._due.pop(timer.key, None)
            elif not (timer.unless_armed and timer.key in self._due):
                self._due[timer.key] = at = self.now_ms + timer.after_ms
                self._earliest_ms = min(at, self._earliest_ms)


def topics_of(names: Mapping[str, int]) -> Topics:
    """Return a topics image with these partition counts."""
    return Topics([Topic(name, Uuid(name.encode().ljust(16, b"-")[:16]), n) for name, n in names.items()])


def group_of(host: Coordinator, group_id: str) -> StreamsGroup | None:
    """Return the streams group with this id, or None if it does not exist."""
    found = host.shard.groups.get(group_id)
    return found if isinstance(found, StreamsGroup) else None
