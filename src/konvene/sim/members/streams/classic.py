"""Stream threads with the classic protocol, as in Kafka Streams before KIP-1071.

They join with user data: their process, task offset sums, and endpoint. The leader assigns tasks
(`classic_leader`). A member follows its assignment: it runs the active tasks, restores the standbys, rejoins
at the time of a probing rebalance, and stops if a source topic is missing or the application is being shut
down.

Most are cooperative, some are eager, and they use all versions of user data. A process has several members,
of either protocol; a state store that another member of the process has open is locked, and its task waits.
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
from konvene.sim.members.streams.classic_leader import MISSING_SOURCE, SHUTDOWN, assign_tasks, read_members

if TYPE_CHECKING:
    from konvene.sim.world.world import World

STREAM = "stream"
USER_DATA_VERSIONS = (11, 11, 11, 11, 11, 11, 10, 10, 9, 8, 7, 7, 6, 5, 4, 3, 2, 1)
"""Versions of user data that applications of different age use."""
EMPTY_ASSIGNMENT = AssignmentInfo(LATEST_VERSION, LATEST_VERSION)


class ClassicApplication(Application, ClassicMember):
    """A stream thread with the classic protocol; `assigned_partitions` includes those being restored."""

    locks_state = True

    def __init__(self, world: World, name: str, group: str, *, static: bool) -> None:
        super().__init__(world, name, group, static=static)
        self.protocol_type = "consumer"
        self.place_and_plan(world)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.process_id} {self.state} generation {self.generation}, {self.tasks}>"

    def _reset(self) -> None:
        super()._reset()
        self.assigned_partitions: set[TopicPartition] = set()
        self.standby_tasks: frozenset[Task] = frozenset()
        """Assigned standby tasks."""
        self.next_rebalance_ms: int | None = None
        """Wall clock time of the next probing rebalance; None if there is none."""
        self.tasks = NO_TASKS
        self.running = set()
        self._error = 0
        self._ticked_ms = self.world.event_queue.now_ms

    def _assignors(self, policy: str) -> list[str]:
        return [STREAM]

    def _is_cooperative(self) -> bool:
        return self.world.random.random() < 0.8

    def _change_settings(self) -> None:
        options, random = self.world.options, self.world.random
        self.session_ms = options["session.ms"] * random.choice([1, 1, 2])
        self.rebalance_ms = options["rebalance.ms"] * random.choice([1, 1, 2])
        if random.random() < 0.1:
            self.process_id = self.process_of(f"{self.host}-{self.name}.{self.life}")

    def change_subscription(self) -> None:
        """Do nothing: the topology determines the subscription."""

    @property
    def is_stable(self) -> bool:
        return super(Application, self).is_stable and self.is_restored

    # --- life ---

    def start(self) -> None:
        options, random = self.world.options, self.world.random
        # All threads of a process run the same version.
        self.version = USER_DATA_VERSIONS[sum(self.process_id.encode()) % len(USER_DATA_VERSIONS)]
        self.endpoint = f"{self.host}:{9000 + random.randint(0, 1)}"
        if random.random() >= options["endpoints"]:
            self.endpoint = ""
        self.tags = (("zone", random.choice("ab")),) if options["varied"] else ()
        self.plan_topology()
        super().start()

    def die(self) -> None:
        super().die()
        self._reset()
        self.world.oracle.record_tasks(self)

    def lose_all(self) -> None:
        self.assigned_partitions, self.standby_tasks, self.next_rebalance_ms = set(), frozenset(), None
        self.tasks, self.running = NO_TASKS, set()
        self.world.oracle.record_tasks(self)
        super().lose_all()

    def request_shutdown(self) -> None:
        """Request the shutdown of the whole application, by the user data of the next JoinGroup."""
        self._error = SHUTDOWN
        if self.state == "in":
            self._prepare_join("application shutdown requested")

    # --- user data ---

    @property
    def assigned(self) -> set[TopicPartition]:
        return self.assigned_partitions

    def _subscription_metadata(self, assignor: str, owned: tuple[Partition, ...]) -> bytes:
        reads = tuple(sorted({topic for topics in self.reads.values() for topic in topics}))
        user_data = write_subscription_info(self.user_data())
        return write_subscription(Subscription(reads, owned, self.generation, user_data=user_data))

    def user_data(self) -> SubscriptionInfo:
        """Return the user data of the member's subscription, in the version that its process uses."""
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

    # --- assignment ---

    def _assign(self, answer: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Return the assignment that this member computes as the group's leader."""
        subscriptions = {}
        for m in answer.members:
            try:
                subscriptions[m.member_id] = read_subscription(m.metadata, m.group_instance_id)
            except CodecError:
                continue
        members = read_members(subscriptions)
        if not members:
            return ()
        assignments = assign_tasks(self.world, self.topology, members, min(1, self.world.options["standbys"]))
        self._partition_counts_assigned = self.world.partition_counts()
        return tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=_encode_assignment(info))
            for member_id, info in assignments.items()
        )

    def _assignment_received(self, assignment: bytes) -> None:
        self.state = "in"
        info = EMPTY_ASSIGNMENT
        try:
            found = read_assignment(assignment)
            partitions = tuple((p.topic, p.partition) for p in found.partitions)
            if found.user_data:
                info = read_assignment_info(found.user_data, partitions)
        except (CodecError, UserDataError):
            partitions = ()
        if info.error_code and not self.world.faults_disabled:
            why = "a source topic is missing" if info.error_code == MISSING_SOURCE else "shutdown requested"
            self.world.log_event(self.name, f"stops: {why}", None)
            self.leave()
            self.world.member_stopped(self)
            return
        self._error = 0
        self.standby_tasks = frozenset(Task(*task) for task in info.standby)
        self.next_rebalance_ms = None if info.next_rebalance_ms == NO_REBALANCE_MS else info.next_rebalance_ms
        self._move_to(set(partitions))

    def set_assigned(self, partitions: set[TopicPartition]) -> None:
        """Replace the assigned partitions and the tasks that read them."""
        self.assigned_partitions = set(partitions)
        readers = {topic: name for name, topics in self.reads.items() for topic in topics}
        active = frozenset(Task(readers[topic], p) for topic, p in partitions if topic in readers)
        self.set_tasks(
            Assignment(
                active, self.standby_tasks - active if partitions or self.state == "in" else frozenset()
            )
        )

    # --- the poll loop ---

    def _tick(self) -> None:
        """Run one iteration: restore, process, sometimes commit, rejoin if a probing rebalance is due."""
        self.schedule(self.heartbeat_ms, self._tick)
        if self.restart_if_outdated():
            return
        self.restore_since(self._ticked_ms)
        self._ticked_ms = self.world.event_queue.now_ms
        if self._revoking:
            return
        self.process()
        if self.state != "in":
            return
        if self.world.random.random() < 0.5:
            self._commit()
        if (
            self.next_rebalance_ms is not None
            and self.next_rebalance_ms <= self.world.event_queue.wall_clock_ms()
        ):
            self.next_rebalance_ms = None
            self._prepare_join("triggered followup rebalance scheduled for probing")
        elif self._partition_counts_assigned not in ({}, self.world.partition_counts()):
            self._partition_counts_assigned = {}
            self._prepare_join("cached metadata has changed")


def _encode_assignment(info: AssignmentInfo) -> bytes:
    partitions = tuple(Partition(*partition) for _, partition in info.active)
    return write_assignment(Assigned(partitions, write_assignment_info(info)))
