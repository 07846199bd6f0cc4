"""The simulated world: clients, a network, one group coordinator and its log, in one thread and virtual time.

A step runs the next entry of the event queue: a request arrives, a response arrives, a timer fires, a sync
completes, a fault is injected. Everything that happens to the coordinator is an `Event`, and every invariant
checks every event. `sim.runs.run` makes a world from a seed and steps it; `sim.world.faults` describes the
fault model.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from konvene.broker.groups.background_work import WORK
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import targets
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved, failed_result
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.changelog_ends import LOOK_UP_ENDS, EndsFound
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.internal_topics import CREATE_TOPICS
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.ports import ExplainedRebalance
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType
from konvene.shard.contract import Effect
from konvene.shard.image import Topic, Topics
from konvene.sim.event_queue import EventQueue
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.invariants import observer
from konvene.sim.invariants.offset_oracle import OffsetOracle, TopicPartition, unowned_commits
from konvene.sim.journal import Log
from konvene.sim.members import assigns, kinds, runs_applications, shares, transacts
from konvene.sim.members.simple import SimpleClient
from konvene.sim.members.streams.application import Application
from konvene.sim.members.streams.state import Stores
from konvene.sim.runtime import SimulatedPorts
from konvene.sim.share.node import ShareNode
from konvene.sim.share.settings import share_settings
from konvene.sim.transactions.node import Transactions, transaction_settings
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.world import fault_actions as chaos
from konvene.sim.world.event import Event, Invariant
from konvene.sim.world.faults import SECRET, Options
from konvene.sim.world.member_ids import MemberIds
from konvene.sim.world.process import Process
from konvene.sim.world.settings import initial_settings
from konvene.sim.world.streams_topics import InternalTopics, streams_settings

if TYPE_CHECKING:
    from konvene.sim.members.member import Member

ORDERS, EXTRA = "orders", "extra"
AUDIT_INTERVAL = 200
"""Events between two audits of the coordinator's whole state."""
RECENT_EVENTS = 30
"""Number of recent events that are kept for the report of a violated invariant."""
PRODUCE_EVERY_MS = 2_000

WorkResult = RegexesResolved | AssignmentComputed | EndsFound
"""Result of background work that a coordinator requested."""

TraceEntry = tuple[int, int, str, str, object]
"""Step, time in ms, actor, action, and the subject (a request, a response or None)."""


class SecretTopics:
    """An authorizer that permits everything except topics whose names begin with `SECRET`."""

    def authorize(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        api_key: int = -1,
        logs_denied: bool = True,
    ) -> bool:
        return not resource.name.startswith(SECRET)

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        return True


AUTHORIZER = SecretTopics()


def consumer_settings(options: Options, both: bool) -> dict[str, str]:
    """Return the broker's settings of consumer and streams groups, without lower limits for their timeouts.

    `both`: classic members may join these groups, so `group.consumer.max.size` must not reject them."""
    settings_by_name = {
        "min.session.timeout.ms": 1,
        "min.heartbeat.interval.ms": 1,
        "session.timeout.ms": options["session.ms"],
        "heartbeat.interval.ms": min(options["heartbeat.ms"], options["session.ms"] // 3),
        "assignment.interval.ms": options["assignment.interval.ms"],
        "max.size": 1000 if both else options["max.size"],
        "migration.policy": options["policy"],
        "regex.refresh.interval.ms": options["regex.refresh.ms"],
    }
    settings = {f"group.consumer.{name}": str(value) for name, value in settings_by_name.items()}
    settings |= streams_settings(options)
    return settings | {"konvene.heartbeat.policy": options["heartbeat.policy"]}


def _depends_on_order(request: Struct) -> bool:
    """Return True for a heartbeat that reports what its member owns or subscribes to.

    Such a request relies on its connection's order: delivered late, over a closed connection, it would revert
    what the member has reported since."""
    if isinstance(request, StreamsGroupHeartbeatRequest):
        return request.active_tasks is not None
    return isinstance(request, ConsumerGroupHeartbeatRequest) and (
        request.topic_partitions is not None
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
    )


class MembershipListener:
    """A listener for changes of ownership and explained rebalances; this one ignores them."""

    def owned(self, member: Member, added: int, removed: int) -> None:
        """Called when a member owns `added` more partitions and `removed` fewer."""

    def explained(self, explained: ExplainedRebalance) -> None:
        """Called for each completed rebalance, with its explanation and the offsets of its records."""


class World:
    """The simulated cluster: members, network, coordinator, log, topics and the virtual clock."""

    def __init__(
        self,
        random: Random,
        options: Options,
        *,
        kinds: Sequence[str] = ("classic",),
        invariants: Sequence[Invariant] = (),
        settings: Sequence[tuple[str, str]] = (),
        trace: Callable[[str], None] | None = None,
        measure: MembershipListener | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.random = random
        self.options = options
        self.kinds = tuple(kinds)
        self.event_queue = EventQueue(random)
        self.conditions = options
        """Options in effect now; without faults once `faults_disabled` is set."""
        self.faults_disabled = False
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.recent: deque[TraceEntry] = deque(maxlen=RECENT_EVENTS)
        self.measure = measure or MembershipListener()
        self.recorder: Recorder | None = None
        self._trace = trace
        self._check = observer(invariants)
        self._stopwatch = stopwatch
        self.checking_s = 0.0
        self._events = self._audited_at = 0
        self._late = False
        """Whether the request being decided arrived over a connection that is closed by now."""
        self.settings = dict(
            [
                ("group.initial.rebalance.delay.ms", str(options["initial.delay.ms"])),
                ("group.max.size", str(options["max.size"])),
                ("offsets.retention.minutes", str(options["retention.minutes"])),
                ("offsets.retention.check.interval.ms", "20000"),
                *settings,
            ]
        )
        if transacts(self.kinds):
            self.settings |= transaction_settings(options) | dict(settings)
        if assigns(self.kinds):
            self.settings |= consumer_settings(options, "migration" in self.kinds) | dict(settings)
        if shares(self.kinds):
            self.settings |= share_settings(options) | dict(settings)
        self._initial_settings = initial_settings() | self.settings
        self.share: ShareNode | None = None
        self._configure()
        self.topics = Topics()
        self._topic_serial = self.topic_changes = 0
        extra = options["partitions"] // 4
        for name, count in ((ORDERS, options["partitions"] - extra), (EXTRA, extra)):
            if count:
                self.set_topic(name, count)
        self.ends: dict[TopicPartition, int] = {}
        self.transactions = Transactions(self) if transacts(self.kinds) else None
        self.share = ShareNode(self) if shares(self.kinds) else None
        self.stores = Stores()
        self.internal_topics = InternalTopics(self)
        self.upgraded: dict[str, float] = {}
        """By group, the fraction of members that start with the streams protocol, once an operator rolled the
        application to another protocol."""
        self.oracle = OffsetOracle(self._is_current, off=bool(options["hostile"]))
        self.log = Log()
        self.runtime = self.new_runtime()
        self.deposed: list[GroupRuntime] = []
        self.cuts: dict[str, frozenset[str]] = {}
        """Names of clients that a network partition isolates, by direction "to" or "from" the coordinator."""
        self.members: list[Member] = []
        self.other_clients: list[Process] = []
        self._ids = MemberIds()
        self._arrivals: dict[str, int] = {}
        self.works_until_ms = 0
        """Time at which all background work that is under way will be complete."""

    def record(self) -> Recorder:
        """Start to record everything that the coordinator decides, as a scenario; return the recorder."""
        first = (
            [f"kinds {' '.join(self.kinds)}", f"heavy {targets.OFFLOAD_WEIGHT}"]
            if assigns(self.kinds)
            else []
        )
        self.recorder = Recorder(self.settings, self.topics, self.event_queue.now_ms, first)
        return self.recorder

    def record_command(self, line: str) -> None:
        """Add a command to the recorded scenario, if there is one, for a change that is no request."""
        if self.recorder is not None:
            self.recorder.time(self.event_queue.now_ms, self.event_queue.wall_off_ms)
            self.recorder.record(line)

    def __repr__(self) -> str:
        return f"<world at step {self.steps}: {len(self.members)} members, {self.runtime!r}>"

    # --- cluster state ---

    def set_topic(self, name: str, partitions: int, *, recreate: bool = True) -> None:
        """Create or replace a topic; without `recreate`, only change the partition count if it exists."""
        existing = self.topics.by_name.get(name)
        self.topic_changes += existing is not None
        if recreate or existing is None:
            self._topic_serial += 1
            topic_id = Uuid(f"{name}-{self._topic_serial}".ljust(16, "-")[-16:].encode())
        else:
            topic_id = existing.id
        other_topics = [t for t in self.topics.by_name.values() if t.name != name]
        self.topics = Topics([*other_topics, Topic(name, topic_id, partitions)], self._topic_serial)
        if self.recorder is not None:
            self.recorder.time(self.event_queue.now_ms, self.event_queue.wall_off_ms)
            self.recorder.topic(name, topic_id, partitions)
        self._counts = {t.name: t.partitions for t in self.topics.by_name.values()}
        if self.share is not None:
            self.share.topics_changed()

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        self.topic_changes += 1
        self.topics = Topics([t for t in self.topics.by_name.values() if t.name != name], self._topic_serial)
        self.record_command(f"topic {name} partitions=0")
        self._counts = {t.name: t.partitions for t in self.topics.by_name.values()}
        for tp in [tp for tp in self.ends if tp[0] == name]:
            del self.ends[tp]
        if self.share is not None:
            self.share.topics_changed()

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic: the same dict object until a topic changes."""
        return self._counts

    def leaves_permanently(self) -> bool:
        """Draw whether a static member that leaves never returns; always True after the faults have ended."""
        return self.faults_disabled or self.random.random() < 0.2

    def subscription(self) -> tuple[str, ...]:
        """Return the topics that honest members read."""
        return (ORDERS, EXTRA)

    def set(self, name: str, value: str) -> None:
        """Change a setting of the broker."""
        self.settings[name] = value
        self.record_command(f"config {name}={value}")
        self._configure()

    def _configure(self) -> None:
        self.config, _ = BrokerConfig.load(overrides=list(self.settings.items()))

    def reset_settings(self) -> None:
        """Restore the initial settings."""
        for name, value in self._initial_settings.items():
            if self.settings.get(name, value) != value:
                self.set(name, value)

    def new_runtime(self) -> GroupRuntime:
        """Return the runtime of a new coordinator on the same log, which is not loaded yet."""
        new = GroupRuntime(
            self.event_queue,
            SimulatedPorts(
                config=lambda: self.config,
                topics=lambda: self.topics,
                load_ms=lambda: self._about(self.conditions["load.ms"]),
                observe=self._observe,
                on_rebalance=self.measure.explained,
                perform=lambda effect: self._perform_effect(new, effect),
            ),
            log=self.log,
            at_once=False,
        )
        return new

    def _perform_effect(self, runtime: GroupRuntime, effect: Effect) -> None:
        """Carry out an effect that the coordinator requested: background work, whose result arrives later."""
        if effect.verb == CREATE_TOPICS:
            self.internal_topics.create(runtime, effect.subject)
            return
        if effect.verb == LOOK_UP_ENDS:
            self._deliver_result(runtime, self.internal_topics.ends(effect.subject))
            return
        if self.share is not None and self.share.perform(runtime, effect):
            return
        self._deliver_result(runtime, WORK[effect.verb](effect.subject, AUTHORIZER))

    def _deliver_result(self, runtime: GroupRuntime, result: WorkResult) -> None:
        """Deliver the result of background work to the coordinator after a delay."""
        delay_ms = self.latency_ms("work.ms")
        self.works_until_ms = max(self.works_until_ms, self.event_queue.now_ms + delay_ms)
        self.event_queue.after(delay_ms, self._result_arrived, runtime, runtime.core, result)

    def latency_ms(self, parameter: str) -> int:
        """Draw an exponentially distributed delay whose mean is the value of a parameter."""
        return self._about(self.conditions[parameter])

    def _result_arrived(self, runtime: GroupRuntime, core: GroupShard, result: WorkResult) -> None:
        """Pass a result to the shard that requested it, unless that was loaded again since."""
        if runtime.core is core and runtime in (self.runtime, *self.deposed):
            self.log_event("work", "is done", result)
            if runtime is self.runtime:
                chaos.append_faults(self, runtime)
            if not runtime.inform(result) and not isinstance(result, EndsFound):
                runtime.inform(failed_result(result))

    def group(self, group_id: str) -> ClassicGroup:
        """Return the classic group of that name, or an empty one."""
        group_found = self.runtime.core.groups.get(group_id)
        return group_found if isinstance(group_found, ClassicGroup) else ClassicGroup(group_id)

    def _is_current(self, member: Member) -> bool:
        """Return True if the coordinator has the member in the generation or epoch that the member knows.

        A member of a modern group may not have received its latest epoch yet, and know an earlier one."""
        group_found = self.runtime.core.groups.get(member.group)
        if isinstance(group_found, StreamsGroup):
            current = (
                group_found.members[member.member_id].current
                if member.member_id in group_found.members
                else None
            )
            return current is not None and 0 < member.epoch in (current.epoch, current.previous_epoch)
        if isinstance(group_found, ConsumerGroup):
            existing = group_found.members.get(member.member_id)
            return existing is not None and 0 < member.epoch <= existing.current.epoch
        group = self.group(member.group)
        return member.member_id in group.members and group.generation == member.epoch

    def live_members(self) -> list[Member]:
        return [m for m in self.members if m.alive]

    def new_member(self) -> Member:
        """Add a member, which is not started yet. The run's kinds and groups take turns."""
        number = len(self.members)
        member = self._member(number)
        self.members.append(member)
        return member

    def _member(self, number: int) -> Member:
        kind = self.kinds[number % len(self.kinds)]
        group = f"g{number % self.options['groups'] + 1}"
        return kinds()[kind].honest(self, f"c{number + 1}", group)

    def restart_member(self, member: Member) -> None:
        """Start a dead member again, replaced by a new one if its kind may change protocol between lives."""
        number = self.members.index(member)
        if kinds()[self.kinds[number % len(self.kinds)]].replaced_on_restart:
            before, member = member, self._member(number)
            member.life, member.connection = (
                before.life,
                before.connection,
            )  # The new one has other member ids.
            if isinstance(before, Application) and isinstance(member, Application):
                member.process_id = before.process_id  # It may have moved to another host.
            self.members[number] = member
        member.start()

    # --- steps ---

    def begin(self) -> None:
        """Load the coordinator and start all clients."""
        for _ in range(self.options["members"]):
            self.new_member()
        for number in range(self.options["hostile"]):
            kind = kinds()[self.kinds[number % len(self.kinds)]]
            self.other_clients.append(
                kind.hostile(self, f"h{number + 1}", f"g{number % self.options['groups'] + 1}")
            )
        for number in range(self.options["simple"]):
            self.other_clients.append(SimpleClient(self, f"s{number + 1}", "g1"))
        self.runtime.load()
        if self.transactions is not None:
            self.other_clients += self.transactions.start()
        if self.share is not None:
            self.share.start()
        if runs_applications(self.kinds):
            self.internal_topics.schedule_source()
        for process in (*self.members, *self.other_clients):
            self.event_queue.after(self.random.randint(0, 2_000), self._start, process)
        self.event_queue.after(PRODUCE_EVERY_MS, self._produce)

    def _start(self, process: Process) -> None:
        """Start a client, unless it was replaced after its start was scheduled."""
        if process in self.members or process in self.other_clients:
            process.start()

    def step(self) -> None:
        """Run the next event."""
        self.steps += 1
        self.event_queue.step()
        for runtime in (self.runtime, *self.deposed):
            runtime.finish()
            self._start_sync(runtime)
        if self.transactions is not None:
            self.transactions.step()
        if self.share is not None:
            self.share.step()
        if self._events - self._audited_at >= AUDIT_INTERVAL:
            self._audited_at = self._events
            self.runtime.audit()

    def chaos(self, steps: int) -> None:
        """Run this many steps; after each, inject a fault with probability 1 / `fault.every`."""
        every = self.options["fault.every"]
        end = self.steps + steps
        while self.steps < end:
            self.step()
            if every and self.random.random() * every < 1:
                chaos.inject_fault(self)

    def run_until(self, done: Callable[[], bool], end_ms: int) -> bool:
        """Step until `done()` is true; return False if it is still false at `end_ms`."""
        while not done():
            due_ms = self.event_queue.next_ms()
            if due_ms is None or due_ms > end_ms:
                self.event_queue.run_until(end_ms)
                return done()
            self.step()
        return True

    def run_for(self, ms: int) -> None:
        """Let this much virtual time pass."""
        self.run_until(lambda: False, self.event_queue.now_ms + ms)

    def _produce(self) -> None:
        """Append records to all topics and schedule the next call, while faults are enabled."""
        if self.faults_disabled:
            return
        for topic in self.topics.by_name.values():
            for _ in range(1 + topic.partitions // 4):
                tp = (topic.name, self.random.randrange(topic.partitions))
                self.ends[tp] = self.ends.get(tp, 0) + self.random.randint(0, 20)
        if self.share is not None:
            self.share.grow()
        self.event_queue.after(PRODUCE_EVERY_MS, self._produce)

    # --- the network ---

    def _about(self, mean_ms: float) -> int:
        return round(self.random.expovariate(1 / mean_ms)) if mean_ms else 0

    def _travel_ms(self, channel: str) -> int:
        """Draw the latency of a message on `channel`; messages of one channel keep their order."""
        conditions, random = self.conditions, self.random
        delay_ms = self._about(conditions["latency.ms"])
        if conditions["clog"] and random.random() < conditions["clog"]:
            delay_ms += self._about(5_000)
        at_ms = max(self.event_queue.now_ms + delay_ms, self._arrivals.get(channel, -1) + 1)
        self._arrivals[channel] = at_ms
        return at_ms - self.event_queue.now_ms

    def send(self, client: Process, number: int, request: Struct, version: int) -> None:
        """Send a request through the simulated network, which may lose, delay or repeat it."""
        conditions, random, event_queue = self.conditions, self.random, self.event_queue
        life, connection = client.life, client.connection
        if client.name in chaos.clients_cut_off(self, "to"):
            self.log_event(client.name, "cannot reach the coordinator", request)
            return
        delay_ms = self._travel_ms(f"{client.name} {connection}")
        if conditions["request.again"] and random.random() < conditions["request.again"]:
            later_ms = delay_ms + random.randint(1, 2 * self.options["session.ms"])
            event_queue.after(later_ms, self._arrive, client, -1, -1, number, request, version)
        if conditions["reset"] and random.random() < conditions["reset"]:
            self.log_event(client.name, "is cut off within a frame", request)
            event_queue.after(delay_ms, client.connection_broken, life, connection)
        elif conditions["request.loss"] and random.random() < conditions["request.loss"]:
            self.log_event(client.name, "loses a request", request)
        else:
            event_queue.after(delay_ms, self._arrive, client, life, connection, number, request, version)

    def _arrive(
        self, client: Process, life: int, connection: int, number: int, request: Struct, version: int
    ) -> None:
        late = (life, connection) != (client.life, client.connection)
        if late and (self.faults_disabled or _depends_on_order(request)):
            return
        if self.transactions is not None and self.transactions.handles(request):
            if not (late and self.transactions.must_arrive_in_order(request, version)):
                self.log_event(client.name, "-> late" if late else "->", request)
                answered = partial(self._answer, client, life, connection, number)
                self.transactions.arrive(client, request, version, answered)
            return
        if self.share is not None and self.share.handles(request):
            self.log_event(client.name, "-> late" if late else "->", request)
            answered = partial(self._answer, client, life, connection, number)
            self.share.arrive(client, (life, connection), request, version, answered)
            return
        self.log_event(client.name, "->" if connection == client.connection else "-> late", request)
        if late and isinstance(request, JoinGroupRequest):
            self.oracle.mark_uncertain(client)
        runtime = self._coordinator_for(request)
        fresh = self._ids.random_part(client.name, request, runtime.core.groups)
        call = RequestContext(version, client.name, "/10.0.0.1", (fresh,))
        if runtime is self.runtime:
            chaos.append_faults(self, runtime)
            self._late = connection != client.connection
        runtime.ask(request, call, lambda answer: self._answer(client, life, connection, number, answer))
        self._late = False
        self._ids.request_decided(client.name, request, runtime.core.groups)

    def _coordinator_for(self, request: Struct) -> GroupRuntime:
        """Return the coordinator that receives a request: with probability 0.5 a deposed one, if any lives.

        Requests about several groups always go to the current coordinator: a deposed one would answer with
        stale offsets, which the oracle would have to allow."""
        if self.deposed and not hasattr(request, "groups") and self.random.random() < 0.5:
            return self.random.choice(self.deposed)
        return self.runtime

    def _answer(
        self, client: Process, life: int, connection: int, number: int, answer: Struct | Errors
    ) -> None:
        if connection < 0 or life != client.life or connection != client.connection:
            return
        conditions, random, event_queue = self.conditions, self.random, self.event_queue
        if client.name in chaos.clients_cut_off(self, "from"):
            self.log_event(client.name, "cannot be reached", answer)
            return
        delay_ms = self._travel_ms(f"{client.name} {connection} back")
        if conditions["reset"] and random.random() < conditions["reset"]:
            self.log_event(client.name, "is cut off within an answer", answer)
            event_queue.after(delay_ms, client.connection_broken, life, connection)
        elif conditions["response.loss"] and random.random() < conditions["response.loss"]:
            self.log_event(client.name, "loses an answer", answer)
        else:
            event_queue.after(delay_ms, self._deliver_response, client, life, connection, number, answer)

    def _deliver_response(
        self, client: Process, life: int, connection: int, number: int, answer: Struct | Errors
    ) -> None:
        self.log_event(client.name, "<-", answer)
        client.receive(life, connection, number, answer)

    # --- the disk ---

    def _start_sync(self, runtime: GroupRuntime) -> None:
        """Start a sync of the log if responses wait for one. It completes, or fails, after a delay."""
        if runtime.sync_pending and not runtime.disk_busy:
            runtime.disk_busy = True
            self.event_queue.after(self._about(self.conditions["sync.ms"]), self._synced, runtime)

    def _synced(self, runtime: GroupRuntime) -> None:
        runtime.disk_busy = False
        fails = self.conditions["sync.fails"]
        if runtime not in (self.runtime, *self.deposed):
            return
        if not runtime.journal.online or (fails and self.random.random() < fails):
            self.log_event("disk", "fails to sync", None)
            if runtime is self.runtime:
                self.record_command("restart")
            runtime.fail_sync()
        else:
            but = len(runtime.log.batches) - runtime.journal.sync_end
            if self.recorder is not None:
                self.record_command(f"durable but={but}" if but else "durable")
                self.record_command("hold")
            runtime.complete_sync(but)

    # --- observers ---

    def log_event(self, actor: str, what: str, detail: object) -> None:
        """Add an entry to the recent events that a violation reports, and to the trace if there is one."""
        entry = (self.steps, self.event_queue.now_ms, actor, what, detail)
        self.recent.append(entry)
        if self._trace is not None:
            self._trace(line(entry))

    def member_stopped(self, member: Member) -> None:
        """Count a member that stopped by itself, as after a fatal error, and usually schedule its restart."""
        self.counts["members that stopped"] += 1
        chaos.maybe_restart(self, member)

    def _observe(self, event: Event) -> None:
        runtime = event.runtime
        if runtime is not self.runtime:
            return
        self._events += 1
        self._count(event)
        if self.recorder is not None:
            self.recorder.time(self.event_queue.now_ms, self.event_queue.wall_off_ms)
            if event.kind == "loaded":
                self.recorder.record("restart")
            else:
                self.recorder.event(event)
        for key in event.before.offsets.keys() - event.after.offsets.keys():
            self.oracle.offset_may_regress(key)
        if event.is_request("JoinGroup") and event.request.member_id and event.error is Errors.NONE:
            name, member_id = event.request.group_id, event.request.member_id
            if member_id not in getattr(event.before.groups.get(name), "members", ()):
                self.oracle.member_readmitted(event.client_id)
        if event.is_request("OffsetCommit"):
            late = self._late or event.request.generation_id_or_member_epoch < 0
            for key in event.after.offsets if late else unowned_commits(event):
                self.oracle.offset_may_regress(key)
        began = self._stopwatch() if self._stopwatch is not None else 0.0
        self._check(event)
        if self.transactions is not None:
            self.transactions.group_event(event)
        if self._stopwatch is not None:
            self.checking_s += self._stopwatch() - began

    def _count(self, event: Event) -> None:
        counts = self.counts
        counts[event.kind] += 1
        if event.kind == "request":
            error = event.error
            counts[f"{event.api} {'waits' if error is None else error.name}"] += 1
        elif event.kind == "timer":
            counts[f"timer {event.key[0]}"] += 1
        if event.changed:
            for name, group in event.after.groups.items():
                counts[f"state {group.state}"] += 1
                old = event.before.groups.get(name)
                if old is not None and type(old) is not type(group) and old.members and group.members:
                    counts[f"became {type(group).__name__}"] += 1
        if self._trace is not None:
            subject = event.api or event.key or None
            self._trace(f"{self.steps} {self.event_queue.now_ms} coordinator {event.kind} {subject}")


def line(entry: TraceEntry) -> str:
    """Format a trace entry on one line."""
    step, at_ms, actor, what, detail = entry
    return f"{step} {at_ms} {actor} {what}" + (f" {detail!r}" if detail is not None else "")
