"""A shell with a clock of its own and people who ask by name: what scenarios and tests play on.

Everything is held against every invariant. Requests go through the codec, so that a coordinator sees what a
client can say. What happened is told in lines, in the order in which it became known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import TaskAssignor
from konvene.groups.consumer.work import given_up
from konvene.groups.group_type import Group
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.runtime.coordinator import Call
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Effect, Rebalance
from konvene.shard.image import Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.group_runtime import TOPICS, GroupRuntime
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.journal import Log
from konvene.sim.transcript.lines import effect_line, record_line, why_line
from konvene.sim.world.event import Event
from konvene.sim.world.member_ids import MemberIds

TraceEntry = tuple[str, Any]
"""What happened, and to whom an answer went: "" for all else, which is a line already."""


class Sandbox:
    """See the top of this file. `kinds` are those of `invariants_of`; `watch` is told each event as well."""

    def __init__(
        self,
        settings: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        kinds: tuple[str, ...] = (),
        random: Random | None = None,
        log: Log | None = None,
        watch: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.settings = dict(settings)
        self.set_config()
        self.topics: Topics = TOPICS
        self.task_assignors: dict[str, TaskAssignor] = {}
        """Those on offer to streams groups, in place of the broker's; empty: the broker's."""
        self.event_queue = EventQueue(random)
        self.log = Log() if log is None else log
        self.holds = False
        """Whether what is appended is not durable until somebody says so."""
        self.waiting: dict[int, str] = {}
        self.answers: dict[str, Struct | Errors] = {}
        self.transcript: list[TraceEntry] = []
        self.why: list[Rebalance] = []
        self.wanted: list[Effect] = []
        """Work that somebody should do, in the order in which it was asked for."""
        self._stories: list[str] = []
        self._ids = MemberIds()
        self._check = observer(invariants_of(kinds))
        self._watch = watch
        self._asked = 0
        self.runtime = self._start()
        self.runtime.load()

    def __repr__(self) -> str:
        return f"<life: {len(self.waiting)} waiting, {self.runtime!r}>"

    @property
    def shard(self) -> GroupShard:
        return self.runtime.core

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.event_queue.wall_clock_ms()

    def group(self, group_id: str) -> Group:
        return self.shard.groups[group_id]

    def invariant(self, kinds: Sequence[str]) -> None:
        """Hold everything against the invariants of these kinds of groups, from now on."""
        self._check = observer(invariants_of(kinds))

    def set_config(self, *changes: tuple[str, str]) -> None:
        """Other settings, from now on."""
        self.settings |= dict(changes)
        self.config, _ = BrokerConfig.load(overrides=list(self.settings.items()))

    # --- what is done ---

    def ask(
        self, who: str, request: Any, version: int, *, client_id: str | None = None
    ) -> Struct | Errors | None:
        """Send a request, or ask what the broker itself may ask; the answer, or None if it is held back."""
        if isinstance(request, Struct):
            request = decode(type(request), version, encode(request, version))
        client_id = who if client_id is None else client_id
        self._asked += 1
        number, heard = self._asked, list[Any]()
        self.waiting[number] = who
        self.answers.pop(who, None)

        def hears(answer: Struct | Errors) -> None:
            heard.append(answer)
            self._hears(number, answer)

        fresh = self._ids.random_part(client_id, request, self.shard.groups)
        call = Call(version, client_id, "/127.0.0.1", (fresh,))
        self.runtime.ask(request, call, hears)
        self._ids.request_decided(client_id, request, self.shard.groups)
        self.look()
        return heard[0] if heard else None

    def own_id(self, client_id: str) -> str:
        """A member id that a client makes by itself."""
        return self._ids.generate_for_client(client_id)

    def look(self) -> None:
        """Hold everything against the invariants."""
        self._tell_stories()
        self.runtime.audit()

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.event_queue.run_until(self.event_queue.now_ms + ms)
        self.look()

    def restart(self) -> None:
        """Forget all but the log, of which nothing is lost."""
        self.crash(keep=len(self.log.batches))

    def crash(self, keep: int = 0, change: Callable[[Log], None] = lambda log: None) -> None:
        """The process dies, and what was not durable is lost but for `keep` batches; a new one begins.

        `change`: what happens to the log meanwhile."""
        old = self.runtime
        old.die()
        self.wanted.clear()
        for number in list(self.waiting):
            self._hears(number, Errors.NOT_COORDINATOR)
        lost = self.log.lose_tail(keep)
        change(self.log)
        self.runtime = self._start()
        self.runtime.ended, self.runtime.lost = old.ended, lost
        self.runtime.load()
        self.look()

    def hold(self) -> None:
        """What is appended from here on is not durable, and answers wait."""
        self.holds, self.runtime.journal.at_once = True, False

    def durable(self, but: int = 0) -> None:
        """What was appended is durable, and what will be is at once; `but` for so many batches that it came
        too late for: then what comes waits as well."""
        if not but:
            self.holds, self.runtime.journal.at_once = False, True
        self.runtime.complete_sync(but)
        self.look()

    def inform(self, news: Any) -> None:
        """Tell the coordinator what came of work that was wanted."""
        if not self.runtime.inform(news) and not isinstance(news, EndsFound):
            self.runtime.inform(given_up(news))
        self.look()

    def ring_now(self, key: tuple[str, ...]) -> bool:
        """Let a timer run out before its time; False where it is not armed."""
        rang = self.runtime.coordinator.ring_now(key)
        self.look()
        return rang

    def next_append(self, how: str) -> None:
        """The next append "fails", or is "too large"."""
        self.runtime.journal.refuse = how

    # --- what becomes of it ---

    def _start(self) -> GroupRuntime:
        return GroupRuntime(
            self.event_queue,
            lambda: self.config,
            log=self.log,
            topics=lambda: self.topics,
            task_assignors=self.task_assignors,
            at_once=not self.holds,
            observe=self._observe,
            on_rebalance=self._tell,
            perform=self._perform,
        )

    def _observe(self, event: Event) -> None:
        self._tell_stories()
        if event.kind == "timer":
            self._say(f"timer {' '.join(event.key)}")
        if event.batch is not None:
            for record in event.batch.records:
                self._say(f"record {record_line(record)}")
        self._check(event)
        self._watch(event)

    def _tell(self, explained: ExplainedRebalance) -> None:
        self.why.append(explained.rebalance)
        self.runtime.end_event()
        self._stories.append(why_line(explained.rebalance))

    def _perform(self, effect: Effect) -> None:
        self.wanted.append(effect)
        self._say(f"work {effect_line(effect)}")

    def _tell_stories(self) -> None:
        """A story comes behind the answers; who asked is answered last."""
        for line in self._stories:
            self._say(line)
        self._stories.clear()

    def _say(self, line: str) -> None:
        self.transcript.append(("", line))

    def _hears(self, number: int, answer: Struct | Errors) -> None:
        who = self.waiting.pop(number, None)
        if who is not None:
            self.answers[who] = answer
            self.transcript.append((who, answer))
