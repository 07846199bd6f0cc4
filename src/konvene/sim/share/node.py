"""A broker that serves share groups, and its share coordinator, in virtual time.

The production code runs: share partitions, sessions, the handlers of ShareFetch and ShareAcknowledge, the
request queue of the share coordinator, and the work that group coordinators start in both. Logs in memory and
the event queue replace storage and the event loop. A closed connection is noticed after a delay.

The share coordinator and the share partitions fail over independently of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.groups.share.work import DeletedTopics
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import Deferred
from konvene.shard.contract import Effect
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    SharePartitionKey,
    TopicsDeleted,
    Write,
)
from konvene.sim.runtime import SimulatedPorts
from konvene.sim.share.admin import BEGIN, Administration
from konvene.sim.share.invariants import ShareStateInvariant, share_state_invariants
from konvene.sim.share.ledger import DeliveryLedger
from konvene.sim.share.logs import NO_PRODUCER, ReadPartition
from konvene.sim.share.runtime import ShareStateRuntime, StateEvent
from konvene.sim.share.share_services import HANDLE, Connection, Deliveries
from konvene.sim.share.state_log import StateLog
from konvene.sim.world import fault_actions
from konvene.sim.world.coordinator_node import CoordinatorNode
from konvene.sim.world.event import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from konvene.sim.group_runtime import GroupRuntime
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World

CHECK_INTERVAL = 20
"""Steps between two checks of all locks."""
SESSIONS_WITHOUT_FAULTS = 1_000
"""Limit of share sessions once faults are disabled: a member without a session would never read."""
MAX_EXPIRY_DELAY_MS = 1_000
"""An expired lock is released within this time."""


class _GroupCoordinator:
    """A group coordinator with what its background work needs: its shard (`core`), and `inform` to return
    results.

    Results are dropped if the coordinator or the share partitions have failed over since the work began."""

    def __init__(self, deliveries: Deliveries, runtime: GroupRuntime) -> None:
        self._deliveries = deliveries
        self._runtime = runtime

    @property
    def core(self) -> GroupShard:
        return self._runtime.core

    def inform(self, completion: object) -> None:
        world = self._deliveries.node.world
        if self._deliveries.loop.alive and self._runtime in (world.runtime, *world.deposed):
            self._runtime.coordinator.inform(completion)


class ShareNode(CoordinatorNode[ShareStateRuntime]):
    """The part of the simulated broker that serves share groups: share coordinator, share partitions and
    ledgers."""

    log_name = "share state"
    log: StateLog

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.log = StateLog()
        self.logs: dict[tuple[Uuid, int], ReadPartition] = {}
        self.ledgers: dict[SharePartitionKey, DeliveryLedger] = {}
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None
        self.altering: set[Initialize] = set()
        """Pending alterations of administrators."""
        self.invariants: list[ShareStateInvariant] = share_state_invariants()
        self.runtime = self.new_runtime()
        self.deliveries = Deliveries(self)
        self._ids = {topic.id for topic in world.topics.by_id.values()}
        self.grow()

    def __repr__(self) -> str:
        return f"<{self.runtime!r}, {self.deliveries.share_partitions!r}>"

    # --- the share coordinator ---

    def new_runtime(self) -> ShareStateRuntime:
        world = self.world
        return ShareStateRuntime(
            world.event_queue,
            SimulatedPorts(
                config=lambda: world.config,
                topics=lambda: world.topics,
                load_ms=lambda: world.latency_ms("load.ms"),
                observe=lambda event: self._observe(event),
            ),
            log=self.log,
        )

    def _observe(self, event: StateEvent) -> None:
        if event.runtime is not self.runtime:
            return
        self.world.counts[f"share state {event.kind}"] += 1
        for invariant in self.invariants:
            invariant.check(event)
        if event.kind == "loaded":
            self._drop_lost_alterations(event)
        self.world.counts["log cut"] = self.log.cut
        request = event.request
        if event.batch is None:
            return
        if isinstance(request, Initialize) and request in self.altering:
            self.ledger(request.key).alteration = request
        elif isinstance(request, Delete) or (
            isinstance(request, Initialize) and self.world.options["hostile"]
        ):
            self.ledgers.pop(request.key, None)  # A hostile client may have read it before.

    def _drop_lost_alterations(self, event: StateEvent) -> None:
        """Called after a load of the share coordinator: if its log has lost the change of a start offset by
        an administrator, remove that change from the ledger, too."""
        for key, ledger in self.ledgers.items():
            state, alteration = event.after.get(key), ledger.alteration
            if alteration is not None and (state is None or state.state_epoch != alteration.state_epoch):
                ledger.alteration = None

    def submit(self, request: object, context: RequestContext) -> Deferred[Any]:
        """Submit a request of a share partition or a group coordinator to the share coordinator, and return
        the pending response; at the rate `write.fails` a Write fails instead."""
        world = self.world
        fails = world.conditions["write.fails"]
        if isinstance(request, Write) and fails and world.random.random() < fails:
            response: Deferred[Any] = Deferred()
            failed = Answer(Errors.UNKNOWN_SERVER_ERROR, "injected write failure")
            world.event_queue.after(world.latency_ms("sync.ms"), response.resolve, failed)
            return response
        fault_actions.append_faults(world, self.runtime)
        return self.runtime.submit(request, context)

    @property
    def state(self) -> str:
        """Return the state of the share coordinator's life cycle, such as `loading` or `active`."""
        return self.runtime.coordinator.state

    def start(self) -> None:
        self.runtime.load()

    def step(self) -> None:
        """Called after each step of the world: schedule the sync of the share coordinator's log, schedule the
        end of connections that clients have closed, and check locks from time to time. Raises the first
        failure."""
        runtime, world = self.runtime, self.world
        runtime.end_event()
        failure = self.failure or runtime.failure
        if failure is not None:
            raise failure
        self.start_sync()
        deliveries = self.deliveries
        if world.faults_disabled:
            deliveries.share_partitions.sessions.limit = SESSIONS_WITHOUT_FAULTS
        closed = [
            connection
            for connection, client in deliveries.connections.items()
            if connection[1:] != (client.life, client.connection)
        ]
        for connection in closed:
            del deliveries.connections[connection]
            delay_ms = world.latency_ms("latency.ms")
            world.event_queue.after(delay_ms, self._disconnected, deliveries, connection)
        if world.steps % CHECK_INTERVAL == 0:
            self._check_locks()

    def _disconnected(self, deliveries: Deliveries, connection: Connection) -> None:
        if deliveries.loop.alive:
            deliveries.share_partitions.disconnected(connection)

    def fail_over_deliveries(self) -> None:
        """Let the share partitions fail over to new, empty ones: all locks, sessions and pending requests to
        the share coordinator are lost, and all clients are disconnected."""
        old = self.deliveries
        old.loop.alive = False
        for partition in self.logs.values():
            partition.waiting.clear()
        self.deliveries = Deliveries(self)
        for client in (*self.world.members, *self.world.other_clients):
            client.disconnect()

    # --- effects of group coordinators ---

    def perform(self, runtime: GroupRuntime, effect: Effect) -> bool:
        """Start the background work that a group coordinator requests with `effect`. Return False if it is
        work of neither the share coordinator nor the share partitions."""
        return self.deliveries.work.perform(cast("Any", _GroupCoordinator(self.deliveries, runtime)), effect)

    # --- requests of clients ---

    def handles(self, request: Struct) -> bool:
        return type(request) in HANDLE or type(request) in BEGIN

    def arrive(
        self, client: Process, at: tuple[int, int], request: Any, version: int,
        respond: Callable[[Struct | Errors], None],
    ) -> None:  # fmt: skip
        """Handle a request of a client; `respond` is called with the response, now or later.

        `at` is the client's connection: the life of the client and a number. The client may have closed it
        since."""
        if type(request) in BEGIN:
            Administration(self, client, request, version, respond)
            return
        deliveries = self.deliveries
        connection = (client.name, *at)
        if at != (client.life, client.connection) and connection not in deliveries.connections:
            return  # The broker has noticed that it is closed.
        deliveries.connections[connection] = client
        context = RequestContext(version, client.name, "/10.0.0.1", connection=connection)
        sessions = deliveries.share_partitions.sessions
        is_full = len(sessions) >= sessions.limit
        answer = deliveries.handlers[type(request)](request, context)
        if len(sessions) > sessions.limit:
            self.report_violation(
                InvariantViolation("ShareSessionsAreLimited", f"{sessions!r}, the limit is {sessions.limit}")
            )
        respond = self._check_session_limit(respond, is_full=is_full)
        if isinstance(answer, Deferred):
            answer.listen(lambda response: respond(response) if deliveries.loop.alive else None)
        else:
            respond(answer)

    def _check_session_limit(
        self, respond: Callable[[Struct | Errors], None], *, is_full: bool
    ) -> Callable[[Struct | Errors], None]:
        """Return a function that calls `respond` after a check: a share session may be rejected only if the
        number of sessions was at its limit (`is_full`)."""

        def check(response: Struct | Errors) -> None:
            rejected = getattr(response, "error_code", 0) == Errors.SHARE_SESSION_LIMIT_REACHED
            self.world.counts["share sessions rejected"] += rejected
            if rejected and not is_full:
                self.report_violation(
                    InvariantViolation("ShareSessionsAreLimited", "rejected below the limit")
                )
            respond(response)

        return check

    # --- partitions ---

    def get(self, topic: str, index: int) -> ReadPartition | None:
        """Return a partition, or None if it does not exist.

        Share partitions use the node in place of the broker's table of partitions, which has this method."""
        known = self.world.topics.by_name.get(topic)
        if known is None or not 0 <= index < known.partitions:
            return None
        topic_partition = (known.id, index)
        if topic_partition not in self.logs:
            self.logs[topic_partition] = ReadPartition(topic)
            self.logs[topic_partition].grow(self.world.ends.get((topic, index), 0))
        return self.logs[topic_partition]

    def missing_error(self, topic: str, index: int, missing: Errors) -> Errors:
        return missing

    def leader_epoch(self, topic: str) -> int:
        return 0

    def grow(self) -> None:
        """Append to the logs the records that the world's producers produced since the last call.

        Each transaction that begins with them is committed or aborted after a drawn time."""
        for topic in self.world.topics.by_name.values():
            for index in range(topic.partitions):
                partition = self.get(topic.name, index)
                assert partition is not None
                begun = partition.grow(self.world.ends.get((topic.name, index), 0), self._producer)
                for producer_id in begun:
                    takes_ms = fault_actions.draw_duration_ms(self.world, 10, 20_000)
                    committed = self.world.random.random() < 0.6
                    self.world.event_queue.after(takes_ms, partition.end_transaction, producer_id, committed)

    def _producer(self) -> int:
        """Draw the producer of the next batch: return one of three producer ids for a batch of a transaction,
        or `NO_PRODUCER` for others."""
        share, random = self.world.options["transactional"], self.world.random
        return random.randrange(3) if share and random.random() < share else NO_PRODUCER

    def lose_beginning(self) -> None:
        """Delete a random number of records from the beginning of a random log, as retention does."""
        random = self.world.random
        candidates = [
            topic_partition
            for topic_partition, partition in self.logs.items()
            if topic_partition[0] in self.world.topics.by_id
        ]
        if candidates:
            log = self.logs[random.choice(candidates)].log
            log.lose_beginning(random.randint(log.start_offset, log.end_offset))

    def topics_changed(self) -> None:
        """Notify the coordinators and the share partitions of topics deleted since the last call, as the
        broker does."""
        ids = {topic.id for topic in self.world.topics.by_id.values()}
        deleted, self._ids = sorted(self._ids - ids), ids
        for topic_id in deleted:
            self.world.runtime.inform(DeletedTopics(frozenset((topic_id,))))
            self.runtime.inform(TopicsDeleted(frozenset((topic_id,))))
            self.deliveries.share_partitions.topic_deleted(topic_id)
            for key in [key for key in self.ledgers if key.topic_id == topic_id]:
                del self.ledgers[key]

    # --- ledgers and invariants ---

    def ledger(self, key: SharePartitionKey) -> DeliveryLedger:
        if key not in self.ledgers:
            ledger = self.ledgers[key] = DeliveryLedger(key, self.report_violation, self.world.counts)
            topic_partition = (key.topic_id, key.partition)
            ledger.log = self.logs[topic_partition].log if topic_partition in self.logs else None
        return self.ledgers[key]

    def report_violation(self, violation: InvariantViolation) -> None:
        """Record a violation, to be raised by the next `step`: raised at once, a handler of the broker might
        catch it."""
        if self.failure is None:
            self.failure = violation

    def check_removed_member(self, group_id: str, member_id: str) -> None:
        """SH12: check that a removed member of a share group has no acquired records."""
        for served in self.deliveries.share_partitions.of_group(group_id):
            ledger = self.ledger(served.key)
            offset = ledger.first_offset_of(member_id)
            if offset is not None and ledger.owner is served.core and ledger.last_released != member_id:
                why = f"{served.key}: {member_id} was removed, but has record {offset}"
                self.report_violation(InvariantViolation("RemovedMembersOwnNoRecords", why))

    def orphans(self) -> list[str]:
        """SH13: return the share partitions that still have state in the share coordinator although their
        topic is deleted."""
        existing = self.world.topics.by_id
        return [str(key) for key in self.runtime.core.states if key.topic_id not in existing]

    def _check_locks(self) -> None:
        """SH2: check that expired locks are released, and that the owners of records are those of the
        ledger."""
        now_ms = self.world.event_queue.now_ms
        for key, served in self.deliveries.share_partitions.served.items():
            if not served.loaded:
                continue
            ledger = self.ledger(key)
            if ledger.owner is not served.core:
                continue  # Its state was replaced; it is about to be notified.
            overdue = ledger.overdue_lock(now_ms - MAX_EXPIRY_DELAY_MS)
            if overdue is not None:
                raise InvariantViolation(
                    "LocksExpire", f"{key}: the lock of {overdue} has expired: {ledger.entries[overdue]!r}"
                )
            difference = ledger.difference(served.core.in_flight())
            if difference is not None:
                raise InvariantViolation("RecordsAreAcquiredOnce", f"{key}: {difference}")

    def unread(self) -> Iterator[str]:
        """Yield a line for each share partition that a group with live members has not read to the end."""
        world = self.world
        for group in sorted({member.group for member in world.live_members()}):
            names = {t for m in world.live_members() if m.group == group for t in m.topics}
            for topic in sorted(names & world.topics.by_name.keys()):
                known = world.topics.by_name[topic]
                for index in range(known.partitions):
                    key, partition = SharePartitionKey(group, known.id, index), self.get(topic, index)
                    assert partition is not None
                    served = self.deliveries.share_partitions.served.get(key)
                    start = served.core.start_offset if served is not None and served.loaded else -1
                    if start < partition.high_watermark:
                        yield f"{key} is at offset {start} of {partition.log!r}: {served and served.core!r}"
