"""Members of the classic protocol that are threads of Kafka Streams, as before KIP-1071.

They join with user data: their process, how far their state is, where they can be asked. Who is made the
leader gives out tasks (`streams_leader`). What a member is told with its assignment it does: it runs the
active tasks, follows the standbys, joins again of its own accord when it is told when, and stops where a
source is missing or all of the application is to be shut down.

Most are cooperative, some are eager, and they speak user data of all versions. A process has several of them,
or of the other protocol; a state that somebody else of the process has open is locked, so that the next one
waits, and nothing goes wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.client.consumer.protocol import (
    Assigned,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from konvene.client.net.cluster import TopicPartition as Partition
from konvene.client.streams.tasks import Assignment, Task
from konvene.codec.errors import CodecError
from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    LATEST_VERSION,
    NO_REBALANCE_MS,
    AssignmentInfo,
    SubscriptionInfo,
    UserDataError,
    read_assignment_info,
    write_assignment_info,
    write_subscription_info,
)
from konvene.messages.join_group import JoinGroupResponse
from konvene.messages.sync_group import SyncGroupRequestAssignment
from konvene.sim.invariants.offset_oracle import TopicPartition
from konvene.sim.members.classic import ClassicMember
from konvene.sim.members.streams.application import NO_TASKS, Application
from konvene.sim.members.streams.classic_leader import MISSING_SOURCE, SHUTDOWN, lead, led

if TYPE_CHECKING:
    from konvene.sim.world.world import World

STREAM = "stream"
VERSIONS = (11, 11, 11, 11, 11, 11, 10, 10, 9, 8, 7, 7, 6, 5, 4, 3, 2, 1)
"""Of user data, as applications of different age speak it."""
NOTHING_TOLD = AssignmentInfo(LATEST_VERSION, LATEST_VERSION)


class ClassicApplication(Application, ClassicMember):
    """See the top of this file. `assigned` is what its consumer was given, before it is restored."""

    locks = True

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group, static=static)
        self.protocol_type = "consumer"
        self.plan(world)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.process_id} {self.state} generation {self.generation}, {self.tasks}>"

    def _reset(self) -> None:
        super()._reset()
        self.assigned: set[TopicPartition] = set()
        self.copies: frozenset[Task] = frozenset()
        """What it was told to have beside what it runs."""
        self.probes_ms: int | None = None
        """When it joins again of its own accord."""
        self.tasks = NO_TASKS
        self.running = set()
        self._error = 0
        self._ticked_ms = self.world.event_queue.now_ms

    def _assignors(self, told: str) -> list[str]:
        return [STREAM]

    def _is_cooperative(self) -> bool:
        return self.world.random.random() < 0.8

    def _vary(self) -> None:
        options, random = self.world.options, self.world.random
        self.session_ms = options["session.ms"] * random.choice([1, 1, 2])
        self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        if random.random() < 0.1:
            self.process_id = self.process_of(f"{self.host}-{self.name}.{self.life}")

    def change_subscription(self) -> None:
        """What it reads is its topology."""

    @property
    def settled(self) -> bool:
        return super(Application, self).settled and self.is_restored

    # --- life ---

    def start(self) -> None:
        options, random = self.world.options, self.world.random
        # The threads of a process are of one age.
        self.version = VERSIONS[sum(self.process_id.encode()) % len(VERSIONS)]
        self.endpoint = f"{self.host}:{9000 + random.randint(0, 1)}"
        if random.random() >= options["endpoints"]:
            self.endpoint = ""
        self.tags = (("zone", random.choice("ab")),) if options["varied"] else ()
        self.plan_topology()
        super().start()

    def die(self) -> None:
        super().die()
        self._reset()
        self.world.oracle.runs(self)

    def forget_all(self) -> None:
        self.assigned, self.copies, self.probes_ms = set(), frozenset(), None
        self.tasks, self.running = NO_TASKS, set()
        self.world.oracle.runs(self)
        super().forget_all()

    def request_shutdown(self) -> None:
        """Something is so wrong with the application that none of it is to go on."""
        self._error = SHUTDOWN
        if self.state == "in":
            self._prepare_join("the application is to be shut down")

    # --- what it says ---

    @property
    def given(self) -> set[TopicPartition]:
        return self.assigned

    def _told(self, assignor: str, owned: tuple[Partition, ...]) -> bytes:
        reads = tuple(sorted({topic for some in self.reads.values() for topic in some}))
        said = write_subscription_info(self.user_data())
        return write_subscription(Subscription(reads, owned, self.generation, user_data=said))

    def user_data(self) -> SubscriptionInfo:
        """What it says of itself, in its version."""
        on_disk = self.world.stores.on_disk(self.process_id, self.group)
        sums: dict[tuple[str, int], int] = dict(on_disk.items())
        sums |= {task: LATEST_OFFSET for task in self.running if task.subtopology in self.stateful}
        return SubscriptionInfo(
            self.version,
            LATEST_VERSION,
            self.process_id,
            prev_tasks=frozenset(self.tasks.active),
            standby_tasks=frozenset(on_disk.keys() - self.tasks.active),
            offset_sums=sums,
            user_endpoint=self.endpoint,
            error_code=0 if self.world.faults_disabled else self._error,
            client_tags=self.tags,
        )

    # --- what it is told ---

    def _assign(self, answer: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """As the leader: who gets what."""
        subscriptions = {}
        for m in answer.members:
            try:
                subscriptions[m.member_id] = read_subscription(m.metadata, m.group_instance_id)
            except CodecError:
                continue
        members = led(subscriptions)
        if not members:
            return ()
        told = lead(self.world, self.topology, members, min(1, self.world.options["standbys"]))
        self._assigned_for = self.world.partition_counts()
        return tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=_written(info))
            for member_id, info in told.items()
        )

    def _take(self, assignment: bytes) -> None:
        self.state = "in"
        told = NOTHING_TOLD
        try:
            found = read_assignment(assignment)
            partitions = tuple((p.topic, p.partition) for p in found.partitions)
            if found.user_data:
                told = read_assignment_info(found.user_data, partitions)
        except (CodecError, UserDataError):
            partitions = ()
        if told.error_code and not self.world.faults_disabled:
            why = "a source is missing" if told.error_code == MISSING_SOURCE else "it is to be shut down"
            self.world.log_event(self.name, f"stops: {why}", None)
            self.leave()
            self.world.member_stopped(self)
            return
        self._error = 0
        self.copies = frozenset(Task(*task) for task in told.standby)
        self.probes_ms = None if told.next_rebalance_ms == NO_REBALANCE_MS else told.next_rebalance_ms
        self._turn_to(set(partitions))

    def take(self, partitions: set[TopicPartition]) -> None:
        """Of a partition the topology says whose task it is."""
        self.assigned = set(partitions)
        readers = {topic: name for name, some in self.reads.items() for topic in some}
        active = frozenset(Task(readers[topic], p) for topic, p in partitions if topic in readers)
        self.have(
            Assignment(active, self.copies - active if partitions or self.state == "in" else frozenset())
        )

    # --- the poll loop ---

    def _tick(self) -> None:
        """Restore, process, now and then commit; and join again when it is time."""
        self.schedule(self.beat_ms, self._tick)
        now_ms = self.world.event_queue.now_ms
        if self.is_outdated():
            self.world.log_event(self.name, "is started anew with the next topology", None)
            self.leave()
            self.start()
            return
        most = (now_ms - self._ticked_ms) * self.world.options["restore.rate"] // 1_000
        self._ticked_ms = now_ms
        self.restore(most)
        if self._giving_up:
            return
        self.process()
        if self.state != "in":
            return
        if self.world.random.random() < 0.5:
            self._commit()
        if self.probes_ms is not None and self.probes_ms <= self.world.event_queue.wall_clock_ms():
            self.probes_ms = None
            self._prepare_join("triggered followup rebalance scheduled for probing")
        elif self._assigned_for not in ({}, self.world.partition_counts()):
            self._assigned_for = {}
            self._prepare_join("cached metadata has changed")


def _written(info: AssignmentInfo) -> bytes:
    partitions = tuple(Partition(*partition) for _, partition in info.active)
    return write_assignment(Assigned(partitions, write_assignment_info(info)))
