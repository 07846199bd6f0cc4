"""A coordinator with a virtual clock and named clients, for scenarios and tests.

Every event is checked against the invariants. Requests pass through the codec, so that the coordinator sees
only what a client can send. `transcript` collects responses and printed lines in the order in which clients
could see them.
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
from konvene.groups.consumer.work import failed_result
from konvene.groups.group_type import Group
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Effect, Rebalance
from konvene.shard.image import Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.group_runtime import TOPICS, GroupRuntime
from konvene.sim.invariants import invariants_of, observer
from konvene.sim.journal import Log
from konvene.sim.runtime import SimulatedPorts
from konvene.sim.transcript.lines import effect_line, record_line, why_line
from konvene.sim.world.event import Event
from konvene.sim.world.member_ids import MemberIds

TraceEntry = tuple[str, object]
"""A client's name and its response, or "" and a line of text."""


class Sandbox:
    """A single coordinator on an in-memory log, driven step by step.

    `kinds` names the kinds of groups whose invariants are checked; `watch` is called with each event."""

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
        """Assignors of streams groups that replace the broker's; if empty, the broker's are used."""
        self.event_queue = EventQueue(random)
        self.log = Log() if log is None else log
        self.holds = False
        """Whether appends stay unsynced until `durable` is called."""
        self.waiting: dict[int, str] = {}
        self.answers: dict[str, Struct | Errors] = {}
        self.transcript: list[TraceEntry] = []
        self.why: list[Rebalance] = []
        self.effects: list[Effect] = []
        """Effects that the coordinator requested and that are not done, in order."""
        self._explanations: list[str] = []
        self._ids = MemberIds()
        self._check = observer(invariants_of(kinds))
        self._watch = watch
        self._last_call = 0
        self.runtime = self._start()
        self.runtime.load()

    def __repr__(self) -> str:
        return f"<life: {len(self.waiting)} waiting, {self.runtime!r}>"

    @property
    def shard(self) -> GroupShard:
        return self.runtime.core

    @property
    def now_ms(self) -> int:
        """The wall-clock time in ms of virtual time."""
        return self.event_queue.wall_clock_ms()

    def group(self, group_id: str) -> Group:
        return self.shard.groups[group_id]

    def invariant(self, kinds: Sequence[str]) -> None:
        """Check the invariants of these kinds of groups, and no others, from now on."""
        self._check = observer(invariants_of(kinds))

    def set_config(self, *changes: tuple[str, str]) -> None:
        """Change settings of the broker."""
        self.settings |= dict(changes)
        self.config, _ = BrokerConfig.load(overrides=list(self.settings.items()))

    # --- actions ---

    def ask(
        self, client: str, request: object, version: int, *, client_id: str | None = None
    ) -> Struct | Errors | None:
        """Send a request of a client or of the broker; return the response, or None if it is not sent yet.

        `client` is the name under which the response is recorded; `client_id` is the client id in the
        request, by default the same."""
        if isinstance(request, Struct):
            request = decode(type(request), version, encode(request, version))
        client_id = client if client_id is None else client_id
        self._last_call += 1
        number, responses = self._last_call, list[Struct | Errors]()
        self.waiting[number] = client
        self.answers.pop(client, None)

        def receive(answer: Struct | Errors) -> None:
            responses.append(answer)
            self._response_arrived(number, answer)

        random_part = self._ids.random_part(client_id, request, self.shard.groups)
        context = RequestContext(version, client_id, "/127.0.0.1", (random_part,))
        self.runtime.ask(request, context, receive)
        self._ids.request_decided(client_id, request, self.shard.groups)
        self.check_invariants()
        return responses[0] if responses else None

    def own_id(self, client_id: str) -> str:
        """Return a new member id that this client generates for itself."""
        return self._ids.generate_for_client(client_id)

    def check_invariants(self) -> None:
        """Check the invariants on the whole state of the shard, not only on what the last event changed."""
        self._flush_explanations()
        self.runtime.audit()

    def advance(self, ms: int) -> None:
        """Let virtual time pass, and fire the timers that are due by then."""
        self.event_queue.run_until(self.event_queue.now_ms + ms)
        self.check_invariants()

    def restart(self) -> None:
        """Restart the coordinator and let it load its log, of which nothing is lost."""
        self.crash(keep=len(self.log.batches))

    def crash(self, keep: int = 0, change: Callable[[Log], None] = lambda log: None) -> None:
        """Kill the coordinator and start another one on its log.

        Of the batches that were not durable the first `keep` survive. `change` may modify the log before it
        is loaded."""
        old = self.runtime
        old.die()
        self.effects.clear()
        for number in list(self.waiting):
            self._response_arrived(number, Errors.NOT_COORDINATOR)
        lost = self.log.lose_tail(keep)
        change(self.log)
        self.runtime = self._start()
        self.runtime.ended, self.runtime.lost = old.ended, lost
        self.runtime.load()
        self.check_invariants()

    def hold(self) -> None:
        """Stop syncing the log: appends are not durable, and responses wait, until `durable`."""
        self.holds, self.runtime.journal.at_once = True, False

    def durable(self, but: int = 0) -> None:
        """Make all batches durable, and later ones as they are appended.

        With `but`, the last `but` batches are not made durable, and neither are later ones."""
        if not but:
            self.holds, self.runtime.journal.at_once = False, True
        self.runtime.complete_sync(but)
        self.check_invariants()

    def inform(self, news: Any) -> None:
        """Deliver the result of background work that the coordinator requested. If its records do not fit
        into a batch, deliver that the work failed."""
        if not self.runtime.inform(news) and not isinstance(news, EndsFound):
            self.runtime.inform(failed_result(news))
        self.check_invariants()

    def fire_timer(self, key: tuple[str, ...]) -> bool:
        """Fire a timer now, before its deadline; return False if it is not armed."""
        fired = self.runtime.coordinator.fire_timer(key)
        self.check_invariants()
        return fired

    def next_append(self, how: str) -> None:
        """Let the next append fail: with an I/O error if `how` is "fails", by its size if it is "too
        large"."""
        self.runtime.journal.refuse = how

    # --- events ---

    def _start(self) -> GroupRuntime:
        return GroupRuntime(
            self.event_queue,
            SimulatedPorts(
                config=lambda: self.config,
                topics=lambda: self.topics,
                task_assignors=self.task_assignors,
                observe=self._observe,
                on_rebalance=self._rebalance_explained,
                perform=self._perform,
            ),
            log=self.log,
            at_once=not self.holds,
        )

    def _observe(self, event: Event) -> None:
        self._flush_explanations()
        if event.kind == "timer":
            self._print(f"timer {' '.join(event.key)}")
        if event.batch is not None:
            for record in event.batch.records:
                self._print(f"record {record_line(record)}")
        self._check(event)
        self._watch(event)

    def _rebalance_explained(self, explained: ExplainedRebalance) -> None:
        self.why.append(explained.rebalance)
        self.runtime.end_event()
        self._explanations.append(why_line(explained.rebalance))

    def _perform(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._print(f"work {effect_line(effect)}")

    def _flush_explanations(self) -> None:
        """Print the collected explanations of rebalances. They are delayed until the records that belong to
        them are printed."""
        for line in self._explanations:
            self._print(line)
        self._explanations.clear()

    def _print(self, line: str) -> None:
        self.transcript.append(("", line))

    def _response_arrived(self, number: int, answer: Struct | Errors) -> None:
        client = self.waiting.pop(number, None)
        if client is not None:
            self.answers[client] = answer
            self.transcript.append((client, answer))
