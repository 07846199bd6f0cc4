"""A model of Kafka Streams threads that change their protocol, against the pure core.

Threads of both protocols behave as the clients do: they run their assigned tasks, revoke tasks before they
report it, and drop all tasks when they are fenced or get no response within their session. Any response may
be lost; any thread may leave, die, or come back with the other protocol. What is checked is what each thread
runs (`World.check`), not the coordinator's state.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.groups.consumer.harness import GroupHarness
from tests.groups.streams.topology.topologies import sent, sub

from konvene.codec.compile import encode
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.subscriptions import read_assignment, read_subscription, write_assignment
from konvene.groups.streams.classic.changelog_ends import EndsFound, EndsToLookUp
from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    AssignmentInfo,
    SubscriptionInfo,
    Task,
    TopicPartition,
    read_assignment_info,
    read_subscription_info,
    write_assignment_info,
    write_subscription_info,
)
from konvene.groups.streams.group import StreamsGroup
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.messages.consumer_protocol import TopicPartition as Owned
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.shard.image import Topic, Topics

PARTITIONS = 4
SUBTOPOLOGIES = {"0": ("in", "first"), "1": ("between", "second")}
"""Source topic and changelog of each subtopology."""

TASKS: list[Task] = [(name, p) for name in SUBTOPOLOGIES for p in range(PARTITIONS)]
READS: dict[Task, TopicPartition] = {task: (SUBTOPOLOGIES[task[0]][0], task[1]) for task in TASKS}
READ_BY = {partition: task for task, partition in READS.items()}

CLASSIC_SESSION_MS, STREAMS_SESSION_MS = 10_000, 45_000
REBALANCE_MS = 20_000
LENGTH = 100_000
"""Length of each changelog."""

SETTINGS = {
    "konvene_streams_mode": "kip",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_assignor_offload_enable": "false",
}

BETWEEN = wire.TopicInfo(name="between", partitions=PARTITIONS, replication_factor=0)
REPARTITIONED = sub("1", repartitioned=(BETWEEN,), state="second")
TOPOLOGY = sent(sub("0", "in", writes="between", state="first"), REPARTITIONED)

ResponseHandler = Callable[[Any, Errors | None], None]


class World:
    """The application's threads, its group, and the network between them."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.random = random.Random(seed)
        self.harness = GroupHarness(**SETTINGS | settings)
        names = [topic for both in SUBTOPOLOGIES.values() for topic in both]
        topics = (Topic(n, Uuid(n.encode().ljust(16, b"-")), PARTITIONS) for n in names)
        self.harness.topics = Topics(topics, 0)
        self.loss = self.random.choice([0, 0, 0.05, 0.15])
        self.is_eager = self.random.random() < 0.25
        self.has_standbys = any(name.endswith("num_standby_replicas") for name in settings)
        self.processes = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
        self.share = 0.0
        """Share of new threads that speak the streams protocol."""
        self.made = 0
        self.threads: list[Thread] = []
        self.waiting: dict[int, tuple[Thread, ResponseHandler]] = {}
        self.became: list[str] = []
        """The types that the group had, in order."""

    def new(self, instance: str | None = None, process: str | None = None) -> None:
        self.made += 1
        if instance is None and self.random.random() < 0.5:
            instance = f"i{self.made}"
        kind = StreamsThread if self.random.random() < self.share else ClassicThread
        process = process or self.random.choice(self.processes)
        self.threads.append(kind(self, f"t{self.made}", process, instance))

    @property
    def alive(self) -> list[Thread]:
        return [thread for thread in self.threads if thread.is_alive]

    # --- requests and responses ---

    def ask(self, thread: Thread, request: Any, version: int, on_response: ResponseHandler) -> None:
        response = self.harness.ask(request, version, thread.name)
        if response is None:
            self.waiting[self.harness.request_id] = thread, on_response
        else:
            self._deliver(thread, on_response, response)
        self.deliver()

    def deliver(self) -> None:
        """Deliver the responses of completed requests."""
        while ready := [request_id for request_id in self.waiting if request_id in self.harness.replies]:
            for request_id in ready:
                self._deliver(*self.waiting.pop(request_id), self.harness.replies[request_id])

    def _deliver(self, thread: Thread, on_response: ResponseHandler, response: Any) -> None:
        if not thread.is_alive:
            return
        if response is None or self.random.random() < self.loss:
            on_response(None, None)
            return
        error = response if isinstance(response, Errors) else Errors(response.error_code)
        if error is Errors.FENCED_INSTANCE_ID:
            thread.die()
            return
        if error is Errors.NONE:
            thread.last_response_ms = self.harness.now_ms
        on_response(response, error)

    def look_up(self) -> None:
        """Answer the pending look-ups of changelog ends."""
        lookups, self.harness.pending_work = self.harness.pending_work, []
        for each in lookups:
            assert isinstance(each, EndsToLookUp), each
            ends = EndsFound(each, dict.fromkeys(each.partitions, LENGTH))
            self.harness.apply(self.harness.shard.handle(ends, self.harness.context()))

    # --- events ---

    def step(self) -> None:
        """Let one event happen: a thread starts, stops or sends a request, or time passes."""
        happens = self.random.random()
        alive = self.alive
        if happens < 0.03 and len(alive) < 5:
            self.new()
        elif happens < 0.06 and len(alive) > 1:
            thread = self.random.choice(alive)
            thread.leave() if happens < 0.05 else thread.die()
            self.deliver()
            if thread.instance is not None:
                self.new(thread.instance, thread.process)
        elif happens < 0.07:
            self.restart()
        elif happens < 0.5 and alive:
            self.random.choice(alive).speak()
        else:
            self.random.shuffle(alive)
            self.speak_all(alive, self.random.choice([300, 1000, 3000]))
        if self.random.random() < 0.5:
            self.look_up()
        self._expire_sessions()
        kind = type(self.harness.group).__name__
        if not self.became or self.became[-1] != kind:
            self.became.append(kind)
        self.check()

    def speak_all(self, threads: list[Thread], ms: int) -> None:
        for thread in threads:
            if thread.is_alive:
                thread.speak()
        self.harness.advance(ms)
        self.deliver()

    def restart(self) -> None:
        """Restart the coordinator from its log; waiting requests get no response."""
        for thread, on_response in self.waiting.values():
            self._deliver(thread, on_response, None)
        self.waiting.clear()
        self.harness.restart(compact=self.random.random() < 0.5)

    def _expire_sessions(self) -> None:
        """Make threads without a response within their session drop their tasks."""
        for thread in self.alive:
            if self.harness.now_ms - thread.last_response_ms >= thread.session_ms and thread.runs:
                thread.forget()

    def check(self) -> None:
        """Check that each task is run by at most one thread and assigned to at most one member."""
        run: dict[Task, Thread] = {}
        for thread in self.alive:
            for task in thread.runs:
                assert task not in run, f"{task} is run by {run[task].name} and {thread.name}"
                run[task] = thread
        group = self.harness.group
        if isinstance(group, StreamsGroup):
            had: set[Task] = set()
            for member in group.members.values():
                for held in (member.current.assigned, member.current.pending_revocation):
                    tasks = {(name, p) for name, epochs in held.active.items() for p in epochs}
                    assert not had & tasks, f"{had & tasks} of two members"
                    had |= tasks
                assert member.current.epoch <= group.assignment_epoch <= group.epoch

    def stop_faults(self) -> None:
        """Stop the faults, and check that all tasks are run in the end."""
        self.loss = 0
        for _ in range(500):
            self.speak_all(self.alive, 1000)
            self.look_up()
            self.check()
            if {task for thread in self.alive for task in thread.runs} == set(TASKS):
                return
        raise AssertionError(f"not all tasks are run: {self.harness.group!r}")


class Thread:
    """What threads of both protocols have in common."""

    session_ms: int

    def __init__(self, world: World, name: str, process: str, instance: str | None) -> None:
        self.world, self.name, self.process, self.instance = world, name, process, instance
        self.is_alive = True
        self.runs: set[Task] = set()
        self.last_response_ms = world.harness.now_ms

    def die(self) -> None:
        self.is_alive, self.runs = False, set()

    def speak(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError


class StreamsThread(Thread):
    """A thread of the streams protocol. Its heartbeats report all of its tasks."""

    session_ms = STREAMS_SESSION_MS

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.member_id = f"{self.name}-{self.world.random.getrandbits(32):08x}"
        self.epoch = 0
        self.has: list[set[Task]] = [set(), set(), set()]
        self.version = self.world.random.choice([0, 1, 1])
        self.full_heartbeat = False

    def forget(self) -> None:
        self.runs, self.epoch, self.has = set(), 0, [set(), set(), set()]

    def leave(self) -> None:
        if self.epoch > 0:
            static = self.instance is not None
            request = StreamsGroupHeartbeatRequest(
                group_id="g",
                member_id=self.member_id,
                instance_id=self.instance,
                member_epoch=-2 if static else -1,
            )
            self.world.harness.ask(request, self.version, self.name)
        self.die()

    def speak(self) -> None:
        body: dict[str, Any]
        if self.epoch == 0:
            body = {"topology": TOPOLOGY, "process_id": self.process, "rebalance_timeout_ms": REBALANCE_MS}
            body |= dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ())
            body["task_offsets"] = () if self.version else None
        else:
            roles = ("active_tasks", "standby_tasks", "warmup_tasks")
            body = {role: _ids(some) for role, some in zip(roles, self.has, strict=True)}
            if self.full_heartbeat:
                body["rebalance_timeout_ms"] = REBALANCE_MS
            copies = sorted(self.has[1] | self.has[2])
            if self.version and copies and self.world.random.random() < 0.5:
                body["task_offsets"] = _offsets(copies, self.world.random.choice([5, LENGTH]))
                body["task_end_offsets"] = _offsets(copies, LENGTH)
        request = StreamsGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, instance_id=self.instance, member_epoch=self.epoch, **body
        )
        self.world.ask(self, request, self.version, self._handle_heartbeat)

    def _handle_heartbeat(self, response: Any, error: Errors | None) -> None:
        if error is None:
            self.full_heartbeat = True
        elif error is Errors.NONE:
            self.epoch, self.full_heartbeat = response.member_epoch, False
            if response.active_tasks is not None:
                lists = response.active_tasks, response.standby_tasks, response.warmup_tasks
                self.has = [{(t.subtopology_id, p) for t in some for p in t.partitions} for some in lists]
                self.runs = set(self.has[0])
        else:
            expected = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH, Errors.GROUP_ID_NOT_FOUND)
            assert error in (*expected, Errors.UNRELEASED_INSTANCE_ID), (self.name, response)
            self.forget()


def _ids(tasks: set[Task]) -> tuple[wire.TaskIds, ...]:
    return tuple(
        wire.TaskIds(subtopology_id=name, partitions=tuple(sorted(p for n, p in tasks if n == name)))
        for name in sorted({name for name, _ in tasks})
    )


def _offsets(tasks: list[Task], offset: int) -> tuple[wire.TaskOffset, ...]:
    return tuple(wire.TaskOffset(subtopology_id=name, partition=p, offset=offset) for name, p in tasks)


class ClassicThread(Thread):
    """A thread of the classic protocol: it heartbeats, joins and syncs; as the leader, it assigns."""

    session_ms = CLASSIC_SESSION_MS

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.member_id, self.generation = "", -1
        self.standby: set[Task] = set()
        self.version = self.world.random.choice([11, 11, 10, 8, 7, 6, 1])
        self.joins, self.syncs, self.waits = True, False, False
        self.request_id = 0
        self.plan: tuple[SyncGroupRequestAssignment, ...] = ()

    def forget(self) -> None:
        """Drop all tasks and join again."""
        self.runs, self.standby, self.generation = set(), set(), -1
        self.joins, self.syncs, self.waits = True, False, False
        self.request_id += 1

    def leave(self) -> None:
        if self.member_id and self.instance is None:
            identity = MemberIdentity(member_id=self.member_id)
            self.world.harness.ask(LeaveGroupRequest(group_id="g", members=(identity,)), 5, self.name)
        self.die()

    def speak(self) -> None:
        if self.waits:
            return
        if self.syncs:
            self._sync()
        elif self.joins:
            self._join()
        else:
            request = HeartbeatRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            self.world.ask(self, request, 4, self._beat)

    def _beat(self, _: Any, error: Errors | None) -> None:
        if error is Errors.REBALANCE_IN_PROGRESS:
            self.joins, self.last_response_ms = True, self.world.harness.now_ms
        elif error not in (None, Errors.NONE):
            self._fenced(error)

    def _fenced(self, error: Errors | None) -> None:
        assert error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION), (self.name, error)
        self.forget()
        if error is Errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    # --- join ---

    def _metadata(self) -> bytes:
        reports_offsets = self.version >= 7
        sums = dict.fromkeys(self.runs, LATEST_OFFSET)
        sums |= {task: self.world.random.choice([5, LENGTH]) for task in sorted(self.standby)}
        info = SubscriptionInfo(
            self.version,
            11,
            self.process,
            frozenset() if reports_offsets else frozenset(self.runs),
            frozenset() if reports_offsets else frozenset(self.standby),
            sums if reports_offsets else {},
        )
        owned = [READS[task] for task in sorted(self.runs)]
        subscription = ConsumerProtocolSubscription(
            topics=("in", "between"),
            user_data=write_subscription_info(info),
            owned_partitions=tuple(Owned(topic=topic, partitions=(p,)) for topic, p in owned),
        )
        return b"\0\1" + encode(subscription, 1)

    def _join(self) -> None:
        if self.world.is_eager:
            self.runs = set()
        request = JoinGroupRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance,
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="stream", metadata=self._metadata()),),
        )
        self._ask(request, 7, self._joined)

    def _ask(self, request: Any, version: int, on_response: ResponseHandler) -> None:
        """Send a request; the response to an earlier one is ignored."""
        self.request_id += 1
        request_id, self.waits = self.request_id, True

        def handle(response: Any, error: Errors | None) -> None:
            if request_id == self.request_id:
                self.waits = False
                on_response(response, error)

        self.world.ask(self, request, version, handle)

    def _joined(self, response: Any, error: Errors | None) -> None:
        if error is Errors.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error is Errors.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.joins, self.syncs = False, True
            self.plan = self._leads(response) if response.leader == self.member_id else ()
        elif error is Errors.UNKNOWN_MEMBER_ID:
            self._fenced(error)
        else:
            again = (None, Errors.REBALANCE_IN_PROGRESS, Errors.COORDINATOR_LOAD_IN_PROGRESS)
            assert error in again, (self.name, error)

    def _leads(self, response: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Keep balanced owners; a task that its owner has to revoke is assigned in a later generation."""
        owners: dict[Task, str] = {}
        version = 11
        for member in response.members:
            subscription = read_subscription(member.metadata)
            assert subscription is not None
            version = min(version, read_subscription_info(subscription.user_data).version)
            owners |= {READ_BY[partition]: member.member_id for partition in subscription.owned}
        names = sorted(member.member_id for member in response.members)
        assigned: dict[str, list[Task]] = {name: [] for name in names}
        most = -(-len(TASKS) // len(names))
        for task in sorted(TASKS, key=lambda task: task not in owners):
            owner = owners.get(task)
            stays = owner is not None and len(assigned[owner]) < most
            assigned[owner if stays else min(names, key=lambda name: len(assigned[name]))].append(task)  # type: ignore[index]
        return tuple(self._assignment_of(name, assigned[name], owners, version) for name in names)

    def _assignment_of(
        self, name: str, tasks: list[Task], owners: dict[Task, str], version: int
    ) -> SyncGroupRequestAssignment:
        rows = sorted((READS[task], task) for task in tasks if owners.get(task, name) == name)
        others = [task for task in TASKS if task not in tasks and self.world.random.random() < 0.2]
        info = AssignmentInfo(
            version,
            11 if version > 2 else -1,
            tuple((task, partition) for partition, task in rows),
            {task: (READS[task],) for task in others} if self.world.has_standbys else {},
        )
        by_topic = [(topic, tuple(p for (t, p), _ in rows if t == topic)) for topic in ("between", "in")]
        assignment = write_assignment(by_topic, b"\0\1", write_assignment_info(info))
        return SyncGroupRequestAssignment(member_id=name, assignment=assignment)

    # --- sync ---

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="stream",
            assignments=self.plan,
        )
        self._ask(request, 5, self._synced)

    def _synced(self, response: Any, error: Errors | None) -> None:
        self.syncs = False
        if error is Errors.NONE:
            assignment = read_assignment(response.assignment)
            assert assignment is not None
            active: set[Task] = set()
            standby: set[Task] = set()
            if assignment.user_data:
                partitions = tuple((topic, p) for topic, some in assignment.partitions for p in some)
                info = read_assignment_info(assignment.user_data, partitions)
                assert all(READS[task] == partition for task, partition in info.active), info
                active, standby = {task for task, _ in info.active}, set(info.standby)
            assert not active & standby
            self.joins = bool(self.runs - active) and not self.world.is_eager
            self.runs, self.standby = active, standby
        elif error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION):
            self._fenced(error)
        else:
            assert error in (None, Errors.REBALANCE_IN_PROGRESS), (self.name, error)
            self.joins = True
