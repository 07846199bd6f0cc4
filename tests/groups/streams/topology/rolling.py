"""Kafka Streams whose threads change their protocol: on the core alone, by a model of its own.

Threads of both protocols behave as the clients do: they run what they were told to run, give up what they are
told to give up before they say so, and forget all where they are fenced or are not heard for their session.
Any answer may be lost, any of them may leave, die, or come back with the other protocol. What each runs is
what is looked at (`World.check`), not what the coordinator takes it for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.groups.consumer.room import Room
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
"""By id, what it reads and what its state is kept in."""

TASKS: list[Task] = [(name, p) for name in SUBTOPOLOGIES for p in range(PARTITIONS)]
READS: dict[Task, TopicPartition] = {task: (SUBTOPOLOGIES[task[0]][0], task[1]) for task in TASKS}
READ_BY = {partition: task for task, partition in READS.items()}

CLASSIC_SESSION_MS, STREAMS_SESSION_MS = 10_000, 45_000
REBALANCE_MS = 20_000
LENGTH = 100_000
"""Of each changelog."""

SETTINGS = {
    "konvene_streams_mode": "kip",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_assignor_offload_enable": "false",
}

BETWEEN = wire.TopicInfo(name="between", partitions=PARTITIONS, replication_factor=0)
REPARTITIONED = sub("1", repartitioned=(BETWEEN,), state="second")
TOPOLOGY = sent(sub("0", "in", writes="between", state="first"), REPARTITIONED)

Heard = Callable[[Any, Errors | None], None]


class World:
    """The application, its group, and the way between them."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.random = random.Random(seed)
        self.room = Room(**SETTINGS | settings)
        names = [topic for both in SUBTOPOLOGIES.values() for topic in both]
        self.room.topics = Topics((Topic(n, Uuid(n.encode().ljust(16, b"-")), PARTITIONS) for n in names), 0)
        self.loss = self.random.choice([0, 0, 0.05, 0.15])
        self.is_eager = self.random.random() < 0.25
        self.has_standbys = any(name.endswith("num_standby_replicas") for name in settings)
        self.processes = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
        self.share = 0.0
        """Of new threads, how many speak the streams protocol."""
        self.made = 0
        self.threads: list[Thread] = []
        self.waiting: dict[int, tuple[Thread, Heard]] = {}
        self.became: list[str] = []
        """Each kind that the group became."""

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

    # --- to the group and back ---

    def ask(self, thread: Thread, request: Any, version: int, heard: Heard) -> None:
        answer = self.room.ask(request, version, thread.name)
        if answer is None:
            self.waiting[self.room.asked] = thread, heard
        else:
            self._deliver(thread, heard, answer)
        self.deliver()

    def deliver(self) -> None:
        """Those answers that came since."""
        while ready := [asked for asked in self.waiting if asked in self.room.replies]:
            for asked in ready:
                self._deliver(*self.waiting.pop(asked), self.room.replies[asked])

    def _deliver(self, thread: Thread, heard: Heard, answer: Any) -> None:
        if not thread.is_alive:
            return
        if answer is None or self.random.random() < self.loss:
            heard(None, None)
            return
        error = answer if isinstance(answer, Errors) else Errors(answer.error_code)
        if error is Errors.FENCED_INSTANCE_ID:
            thread.die()
            return
        if error is Errors.NONE:
            thread.heard_ms = self.room.now_ms
        heard(answer, error)

    def look_up(self) -> None:
        """Say where changelogs end."""
        wanted, self.room.wanted = self.room.wanted, []
        for each in wanted:
            assert isinstance(each, EndsToLookUp), each
            found = EndsFound(each, dict.fromkeys(each.partitions, LENGTH))
            self.room.take(self.room.shard.handle(found, self.room.context()))

    # --- what happens ---

    def step(self) -> None:
        """One thing: somebody comes, goes or speaks, or time passes."""
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
            self.everybody(alive, self.random.choice([300, 1000, 3000]))
        if self.random.random() < 0.5:
            self.look_up()
        self._see_sessions()
        kind = type(self.room.group).__name__
        if not self.became or self.became[-1] != kind:
            self.became.append(kind)
        self.check()

    def everybody(self, threads: list[Thread], ms: int) -> None:
        for thread in threads:
            if thread.is_alive:
                thread.speak()
        self.room.advance(ms)
        self.deliver()

    def restart(self) -> None:
        """The coordinator knows what its log says; who waited is not answered."""
        for thread, heard in self.waiting.values():
            self._deliver(thread, heard, None)
        self.waiting.clear()
        self.room.restart(compact=self.random.random() < 0.5)

    def _see_sessions(self) -> None:
        """Who was not heard for its session runs nothing any more."""
        for thread in self.alive:
            if self.room.now_ms - thread.heard_ms >= thread.session_ms and thread.runs:
                thread.forget()

    def check(self) -> None:
        """A task is run by one thread at most, and had by one member, whichever protocol they speak."""
        run: dict[Task, Thread] = {}
        for thread in self.alive:
            for task in thread.runs:
                assert task not in run, f"{task} is run by {run[task].name} and {thread.name}"
                run[task] = thread
        group = self.room.group
        if isinstance(group, StreamsGroup):
            had: set[Task] = set()
            for member in group.members.values():
                for held in (member.current.assigned, member.current.pending_revocation):
                    tasks = {(name, p) for name, epochs in held.active.items() for p in epochs}
                    assert not had & tasks, f"{had & tasks} of two members"
                    had |= tasks
                assert member.current.epoch <= group.assignment_epoch <= group.epoch

    def calm_down(self) -> None:
        """Nothing happens any more: in the end all tasks are run."""
        self.loss = 0
        for _ in range(500):
            self.everybody(self.alive, 1000)
            self.look_up()
            self.check()
            if {task for thread in self.alive for task in thread.runs} == set(TASKS):
                return
        raise AssertionError(f"not all tasks are run: {self.room.group!r}")


class Thread:
    """What threads of either protocol share."""

    session_ms: int

    def __init__(self, world: World, name: str, process: str, instance: str | None) -> None:
        self.world, self.name, self.process, self.instance = world, name, process, instance
        self.is_alive = True
        self.runs: set[Task] = set()
        self.heard_ms = world.room.now_ms

    def die(self) -> None:
        self.is_alive, self.runs = False, set()

    def speak(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError


class StreamsThread(Thread):
    """It says all that it has, whenever it speaks."""

    session_ms = STREAMS_SESSION_MS

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.member_id = f"{self.name}-{self.world.random.getrandbits(32):08x}"
        self.epoch = 0
        self.has: list[set[Task]] = [set(), set(), set()]
        self.version = self.world.random.choice([0, 1, 1])
        self.unsure = False

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
            self.world.room.ask(request, self.version, self.name)
        self.die()

    def speak(self) -> None:
        told: dict[str, Any]
        if self.epoch == 0:
            told = {"topology": TOPOLOGY, "process_id": self.process, "rebalance_timeout_ms": REBALANCE_MS}
            told |= dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ())
            told["task_offsets"] = () if self.version else None
        else:
            roles = ("active_tasks", "standby_tasks", "warmup_tasks")
            told = {role: _ids(some) for role, some in zip(roles, self.has, strict=True)}
            if self.unsure:
                told["rebalance_timeout_ms"] = REBALANCE_MS
            copies = sorted(self.has[1] | self.has[2])
            if self.version and copies and self.world.random.random() < 0.5:
                told["task_offsets"] = _offsets(copies, self.world.random.choice([5, LENGTH]))
                told["task_end_offsets"] = _offsets(copies, LENGTH)
        request = StreamsGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, instance_id=self.instance, member_epoch=self.epoch, **told
        )
        self.world.ask(self, request, self.version, self._heard)

    def _heard(self, answer: Any, error: Errors | None) -> None:
        if error is None:
            self.unsure = True
        elif error is Errors.NONE:
            self.epoch, self.unsure = answer.member_epoch, False
            if answer.active_tasks is not None:
                lists = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
                self.has = [{(t.subtopology_id, p) for t in some for p in t.partitions} for some in lists]
                self.runs = set(self.has[0])
        else:
            expected = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH, Errors.GROUP_ID_NOT_FOUND)
            assert error in (*expected, Errors.UNRELEASED_INSTANCE_ID), (self.name, answer)
            self.forget()


def _ids(tasks: set[Task]) -> tuple[wire.TaskIds, ...]:
    return tuple(
        wire.TaskIds(subtopology_id=name, partitions=tuple(sorted(p for n, p in tasks if n == name)))
        for name in sorted({name for name, _ in tasks})
    )


def _offsets(tasks: list[Task], offset: int) -> tuple[wire.TaskOffset, ...]:
    return tuple(wire.TaskOffset(subtopology_id=name, partition=p, offset=offset) for name, p in tasks)


class ClassicThread(Thread):
    """It heartbeats, joins and syncs; where it leads, it assigns."""

    session_ms = CLASSIC_SESSION_MS

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.member_id, self.generation = "", -1
        self.standby: set[Task] = set()
        self.version = self.world.random.choice([11, 11, 10, 8, 7, 6, 1])
        self.joins, self.syncs, self.waits = True, False, False
        self.asked = 0
        self.plan: tuple[SyncGroupRequestAssignment, ...] = ()

    def forget(self) -> None:
        """It lost what it had: it joins anew."""
        self.runs, self.standby, self.generation = set(), set(), -1
        self.joins, self.syncs, self.waits = True, False, False
        self.asked += 1

    def leave(self) -> None:
        if self.member_id and self.instance is None:
            who = MemberIdentity(member_id=self.member_id)
            self.world.room.ask(LeaveGroupRequest(group_id="g", members=(who,)), 5, self.name)
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
            self.joins, self.heard_ms = True, self.world.room.now_ms
        elif error not in (None, Errors.NONE):
            self._fenced(error)

    def _fenced(self, error: Errors | None) -> None:
        assert error in (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION), (self.name, error)
        self.forget()
        if error is Errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    # --- join ---

    def _metadata(self) -> bytes:
        says_offsets = self.version >= 7
        sums = dict.fromkeys(self.runs, LATEST_OFFSET)
        sums |= {task: self.world.random.choice([5, LENGTH]) for task in sorted(self.standby)}
        said = SubscriptionInfo(
            self.version,
            11,
            self.process,
            frozenset() if says_offsets else frozenset(self.runs),
            frozenset() if says_offsets else frozenset(self.standby),
            sums if says_offsets else {},
        )
        owned = [READS[task] for task in sorted(self.runs)]
        subscription = ConsumerProtocolSubscription(
            topics=("in", "between"),
            user_data=write_subscription_info(said),
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

    def _ask(self, request: Any, version: int, heard: Heard) -> None:
        """What was asked before is of no interest any more."""
        self.asked += 1
        asked, self.waits = self.asked, True

        def once(answer: Any, error: Errors | None) -> None:
            if asked == self.asked:
                self.waits = False
                heard(answer, error)

        self.world.ask(self, request, version, once)

    def _joined(self, answer: Any, error: Errors | None) -> None:
        if error is Errors.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is Errors.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.joins, self.syncs = False, True
            self.plan = self._leads(answer) if answer.leader == self.member_id else ()
        elif error is Errors.UNKNOWN_MEMBER_ID:
            self._fenced(error)
        else:
            again = (None, Errors.REBALANCE_IN_PROGRESS, Errors.COORDINATOR_LOAD_IN_PROGRESS)
            assert error in again, (self.name, error)

    def _leads(self, answer: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Tasks stay where that is even; what somebody has to give up waits a generation."""
        owners: dict[Task, str] = {}
        version = 11
        for member in answer.members:
            said = read_subscription(member.metadata)
            assert said is not None
            version = min(version, read_subscription_info(said.user_data).version)
            owners |= {READ_BY[partition]: member.member_id for partition in said.owned}
        names = sorted(member.member_id for member in answer.members)
        given: dict[str, list[Task]] = {name: [] for name in names}
        most = -(-len(TASKS) // len(names))
        for task in sorted(TASKS, key=lambda task: task not in owners):
            owner = owners.get(task)
            stays = owner is not None and len(given[owner]) < most
            given[owner if stays else min(names, key=lambda name: len(given[name]))].append(task)  # type: ignore[index]
        return tuple(self._told(name, given[name], owners, version) for name in names)

    def _told(
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

    def _synced(self, answer: Any, error: Errors | None) -> None:
        self.syncs = False
        if error is Errors.NONE:
            told = read_assignment(answer.assignment)
            assert told is not None
            active: set[Task] = set()
            standby: set[Task] = set()
            if told.user_data:
                partitions = tuple((topic, p) for topic, some in told.partitions for p in some)
                info = read_assignment_info(told.user_data, partitions)
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
