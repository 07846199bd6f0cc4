"""Who delivers the records of share groups, and the share coordinator beside it, in virtual time.

What runs is the broker's: share partitions, sessions, the handlers of ShareFetch and ShareAcknowledge, the
queue before the share coordinator, and what share groups ask of both. What they stand on is made for them:
logs that are lists, a loop that is the agenda. A connection that a client has given up is noticed after a
while, as by a broker.

The share coordinator dies by itself (another one reads its log), deliveries die by themselves, or both do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
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
from konvene.sim.share.admin import BEGIN, Administration
from konvene.sim.share.invariants import ShareStateInvariant, share_state_invariants
from konvene.sim.share.ledger import Book
from konvene.sim.share.logs import NOBODY, ReadPartition
from konvene.sim.share.runtime import ShareStateRuntime, StateEvent
from konvene.sim.share.share_services import HANDLE, Connection, Deliveries
from konvene.sim.share.state_log import StateLog
from konvene.sim.world import fault_actions
from konvene.sim.world.event import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from konvene.sim.group_runtime import GroupRuntime
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World

LOOK_EVERY = 20
"""Steps between two looks at all locks."""
MOST_SESSIONS = 1_000
"""Once it is calm: who has none of few sessions reads nothing, and nobody else reads it for him."""
LATE_MS = 1_000
"""A lock that ended is noticed within this time."""


class _Group:
    """A group's coordinator as it is told what came of what it asked for: nothing, if it is gone by then."""

    def __init__(self, deliveries: Deliveries, runtime: GroupRuntime) -> None:
        self._deliveries = deliveries
        self._runtime = runtime

    @property
    def core(self) -> Any:
        return self._runtime.core

    def inform(self, news: Any) -> None:
        world = self._deliveries.node.world
        if self._deliveries.loop.alive and self._runtime in (world.runtime, *world.deposed):
            self._runtime.coordinator.inform(news)


class ShareNode:
    """See the top of this file."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = StateLog()
        self.logs: dict[tuple[Uuid, int], ReadPartition] = {}
        self.books: dict[SharePartitionKey, Book] = {}
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None
        self.altering: set[Initialize] = set()
        """What administrators want share partitions to begin with."""
        self.invariants: list[ShareStateInvariant] = share_state_invariants()
        self.runtime = self._new_runtime()
        self.deliveries = Deliveries(self)
        self._ids = {topic.id for topic in world.topics.by_id.values()}
        self.grow()

    def __repr__(self) -> str:
        return f"<{self.runtime!r}, {self.deliveries.share_partitions!r}>"

    # --- the share coordinator ---

    def _new_runtime(self) -> ShareStateRuntime:
        world = self.world
        return ShareStateRuntime(
            world.event_queue,
            lambda: world.config,
            log=self.log,
            topics=lambda: world.topics,
            load_ms=lambda: world.latency_ms("load.ms"),
            observe=lambda event: self._observe(event),
        )

    def _observe(self, event: StateEvent) -> None:
        if event.runtime is not self.runtime:
            return
        self.world.counts[f"share state {event.kind}"] += 1
        for invariant in self.invariants:
            invariant.check(event)
        if event.kind == "loaded":
            self._altered_is_kept(event)
        self.world.counts["log cut"] = self.log.cut
        begins_anew = isinstance(event.request, Initialize) and self.world.options["hostile"]
        if event.batch is not None and event.request in self.altering:
            self.book(event.request.key).altered = event.request
        elif event.batch is not None and (begins_anew or isinstance(event.request, Delete)):
            self.books.pop(event.request.key, None)  # Who is not honest read before it had begun.

    def _altered_is_kept(self, event: StateEvent) -> None:
        """What was altered, and lost with its batch, was not altered."""
        for key, book in self.books.items():
            known, wanted = event.after.get(key), book.altered
            if wanted is not None and (known is None or known.state_epoch != wanted.state_epoch):
                book.altered = None

    def submit(self, request: Any, context: RequestContext) -> Deferred[Any]:
        """What the share coordinator is asked, by whoever delivers or by a group's coordinator."""
        world = self.world
        fails = world.conditions["write.fails"]
        if isinstance(request, Write) and fails and world.random.random() < fails:
            answer: Deferred[Any] = Deferred()
            failed = Answer(Errors.UNKNOWN_SERVER_ERROR, "the write came to nothing")
            world.event_queue.after(world.latency_ms("sync.ms"), answer.resolve, failed)
            return answer
        fault_actions.append_faults(world, self.runtime)
        return self.runtime.submit(request, context)

    @property
    def state(self) -> str:
        """The share coordinator's."""
        return self.runtime.coordinator.state

    def begin(self) -> None:
        self.runtime.load()

    def step(self) -> None:
        """After a step of the world: the disk, connections that are lost, and what went wrong."""
        runtime, world = self.runtime, self.world
        runtime.end_event()
        failure = self.failure or runtime.failure
        if failure is not None:
            raise failure
        if runtime.sync_pending and not runtime.disk_busy:
            runtime.disk_busy = True
            world.event_queue.after(world.latency_ms("sync.ms"), self._synced, runtime)
        deliveries = self.deliveries
        if world.faults_disabled:
            deliveries.share_partitions.sessions.limit = MOST_SESSIONS
        gone = [c for c, client in deliveries.known.items() if c[1:] != (client.life, client.connection)]
        for connection in gone:
            del deliveries.known[connection]
            world.event_queue.after(world.latency_ms("latency.ms"), self._lost, deliveries, connection)
        if world.steps % LOOK_EVERY == 0:
            self._nothing_is_late()

    def _lost(self, deliveries: Deliveries, connection: Connection) -> None:
        if deliveries.loop.alive:
            deliveries.share_partitions.disconnected(connection)

    def _synced(self, runtime: ShareStateRuntime) -> None:
        runtime.disk_busy = False
        if runtime is not self.runtime:
            return
        fails = self.world.conditions["sync.fails"]
        if fails and self.world.random.random() < fails:
            self.world.log_event("disk", "fails to sync share state", None)
            runtime.fail_sync()
        else:
            runtime.complete_sync()

    def fail_over(self) -> None:
        """The share coordinator dies; what was not durable is lost, in part or as a whole."""
        random, old = self.world.random, self.runtime
        old.die()
        left = len(self.log.batches) - self.log.durable
        lost = self.log.lose_tail(random.choice([0, left, random.randint(0, left)]))
        self.runtime = new = self._new_runtime()
        new.ended, new.lost = old.ended, old.lost + lost
        new.load()

    def dies(self) -> None:
        """Who delivers is gone, with all locks and sessions, and whatever was under way to the share
        coordinator. Another one begins."""
        old = self.deliveries
        old.loop.alive = False
        for partition in self.logs.values():
            partition.waiting.clear()
        self.deliveries = Deliveries(self)
        for client in (*self.world.members, *self.world.other_clients):
            client.disconnect()

    # --- what groups ask ---

    def perform(self, runtime: GroupRuntime, effect: Effect) -> bool:
        """Whether it is for the share coordinator, or for who delivers."""
        return self.deliveries.work.perform(cast("Any", _Group(self.deliveries, runtime)), effect)

    # --- what clients ask ---

    def takes(self, request: Struct) -> bool:
        return type(request) in HANDLE or type(request) in BEGIN

    def arrive(
        self, client: Process, at: tuple[int, int], request: Any, version: int,
        answered: Callable[[Struct | Errors], None],
    ) -> None:  # fmt: skip
        """A request came by this connection, which the client may have given up meanwhile."""
        if type(request) in BEGIN:
            Administration(self, client, request, version, answered)
            return
        deliveries = self.deliveries
        connection = (client.name, *at)
        if at != (client.life, client.connection) and connection not in deliveries.known:
            return  # The broker has closed it.
        deliveries.known[connection] = client
        context = RequestContext(version, client.name, "/10.0.0.1", connection=connection)
        sessions = deliveries.share_partitions.sessions
        full = len(sessions) >= sessions.limit
        answer = deliveries.handlers[type(request)](request, context)
        if len(sessions) > sessions.limit:
            self.broken(
                InvariantViolation("ShareSessionsAreLimited", f"{sessions!r}, and {sessions.limit} may be")
            )
        answered = self._looks(answered, full=full)
        if isinstance(answer, Deferred):
            answer.listen(lambda told: answered(told) if deliveries.loop.alive else None)
        else:
            answered(answer)

    def _looks(
        self, answered: Callable[[Struct | Errors], None], *, full: bool
    ) -> Callable[[Struct | Errors], None]:
        """Nobody is turned away while there is room."""

        def told(answer: Struct | Errors) -> None:
            refused = getattr(answer, "error_code", 0) == Errors.SHARE_SESSION_LIMIT_REACHED
            self.world.counts["turned away"] += refused
            if refused and not full:
                self.broken(
                    InvariantViolation(
                        "ShareSessionsAreLimited", "somebody is turned away, and there is room"
                    )
                )
            answered(answer)

        return told

    # --- what there is to read ---

    def get(self, topic: str, index: int) -> ReadPartition | None:
        """A partition, as the broker's `partitions`."""
        known = self.world.topics.by_name.get(topic)
        if known is None or not 0 <= index < known.partitions:
            return None
        place = (known.id, index)
        if place not in self.logs:
            self.logs[place] = ReadPartition(topic)
            self.logs[place].grow(self.world.ends.get((topic, index), 0))
        return self.logs[place]

    def why_not(self, topic: str, index: int, missing: Errors) -> Errors:
        return missing

    def leader_epoch(self, topic: str) -> int:
        return 0

    def grow(self) -> None:
        """Records came."""
        for topic in self.world.topics.by_name.values():
            for index in range(topic.partitions):
                found = self.get(topic.name, index)
                assert found is not None
                begun = found.grow(self.world.ends.get((topic.name, index), 0), self._producer)
                for producer_id in begun:
                    takes_ms = fault_actions.draw_duration_ms(self.world, 10, 20_000)
                    committed = self.world.random.random() < 0.6
                    self.world.event_queue.after(takes_ms, found.end_transaction, producer_id, committed)

    def _producer(self) -> int:
        """Who writes the next batch."""
        part, random = self.world.options["transactional"], self.world.random
        return random.randrange(3) if part and random.random() < part else NOBODY

    def lose_beginning(self) -> None:
        """Retention takes the beginning of a log."""
        random = self.world.random
        some = [place for place, partition in self.logs.items() if place[0] in self.world.topics.by_id]
        if some:
            log = self.logs[random.choice(some)].log
            log.lose_beginning(random.randint(log.start_offset, log.end_offset))

    def topics_changed(self) -> None:
        """Topics that are gone are told to everybody, as the broker does."""
        ids = {topic.id for topic in self.world.topics.by_id.values()}
        gone, self._ids = sorted(self._ids - ids), ids
        for topic_id in gone:
            self.world.runtime.inform(DeletedTopics(frozenset((topic_id,))))
            self.runtime.inform(TopicsDeleted(frozenset((topic_id,))))
            self.deliveries.share_partitions.topic_deleted(topic_id)
            for key in [key for key in self.books if key.topic_id == topic_id]:
                del self.books[key]

    # --- the books ---

    def book(self, key: SharePartitionKey) -> Book:
        if key not in self.books:
            book = self.books[key] = Book(key, self.broken, self.world.counts)
            place = (key.topic_id, key.partition)
            book.log = self.logs[place].log if place in self.logs else None
        return self.books[key]

    def broken(self, broken: InvariantViolation) -> None:
        """Told after the step: nobody in between shall take it for an error of the broker's."""
        if self.failure is None:
            self.failure = broken

    def has_nothing(self, group_id: str, member_id: str) -> None:
        """SH12: whoever is gone has nothing any more."""
        for served in self.deliveries.share_partitions.of_group(group_id):
            book = self.book(served.key)
            held = book.held_by(member_id)
            if held is not None and book.owner is served.core and book.released_last != member_id:
                why = f"{served.key}: {member_id} is gone, and has {held}"
                self.broken(InvariantViolation("MembersThatAreGoneHoldNothing", why))

    def orphans(self) -> list[str]:
        """SH13: what is known of topics that are gone."""
        known = self.world.topics.by_id
        return [str(key) for key in self.runtime.core.states if key.topic_id not in known]

    def _nothing_is_late(self) -> None:
        """SH2: a lock that ended is taken off; and who has what is what the books say."""
        now_ms = self.world.event_queue.now_ms
        for key, served in self.deliveries.share_partitions.served.items():
            if not served.loaded:
                continue
            book = self.book(key)
            if book.owner is not served.core:
                continue  # Its state is another one by now, of which it hears in a moment.
            late = book.late(now_ms - LATE_MS)
            if late is not None:
                raise InvariantViolation(
                    "LocksEnd", f"{key}: the lock of {late} has ended: {book.entries[late]!r}"
                )
            wrong = book.differs(served.core.in_flight())
            if wrong is not None:
                raise InvariantViolation("RecordsAreHeldOnce", f"{key}: {wrong}")

    def left(self) -> Iterator[str]:
        """What is not read, by the groups whose members live."""
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
                        yield f"{key} is at {start} of {partition.log!r}: {served and served.core!r}"
