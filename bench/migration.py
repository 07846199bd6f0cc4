"""Upgrade of a Kafka Streams application from the classic protocol to the streams protocol (KIP-1071).

Its threads use the classic protocol, each with state, standby copies of another thread's tasks, and an
endpoint, so that every member receives all endpoints. They form a classic group with an assignment of its
leader; then a member joins with the streams protocol and the group is converted. The benchmark measures the
request that converts the group, the rejoins of all other members, and their heartbeats during the roll-out.

Apache Kafka 4.4 does not convert a group that has members.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from uuid import uuid4

from bench.drive import Caller, Repeated, drive, run
from bench.figures import Figure, less, rates
from bench.members import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from bench.settling import broker
from bench.systems import NO_DELAY, Lab, Running, report_progress
from bench.topics import Topic, make_topic, new_name, prove
from bench.wire import Asking, BadAnswer, asking, frame_of
from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.groups.classic.subscriptions import read_assignment, write_assignment
from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    LATEST_VERSION,
    AssignmentInfo,
    SubscriptionInfo,
    Task,
    read_assignment_info,
    write_assignment_info,
    write_subscription_info,
)
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SETTINGS = NO_DELAY | {
    "group.initial.rebalance.delay.ms": "500",  # All threads are in the first generation.
    "konvene.streams.mode": "kip",
    "group.streams.max.size": "10000",
    "group.streams.num.standby.replicas": "1",
}
EACH = 2
"""Number of tasks per thread."""
CONNECTIONS = 64


class Thread:
    """A member with the classic protocol, on a connection of its own."""

    def __init__(self, rolling: Rolling, line: Asking, number: int) -> None:
        self.rolling = rolling
        self.line = line
        self.endpoint = f"host-{number:04}.example.org:9000"
        self.process_id = str(uuid4())
        self.member_id = ""
        self.generation = -1
        self.has = AssignmentInfo(LATEST_VERSION, LATEST_VERSION)

    @property
    def beat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.rolling.group, generation_id=self.generation, member_id=self.member_id
        )

    def metadata(self) -> bytes:
        """Return the subscription metadata: all standby copies have caught up; no offsets are reported for
        active tasks."""
        sums: dict[Task, int] = dict.fromkeys(self.has.standby, 0)
        sums |= dict.fromkeys((task for task, _ in self.has.active), LATEST_OFFSET)
        subscription_info = SubscriptionInfo(
            LATEST_VERSION, LATEST_VERSION, self.process_id, offset_sums=sums, user_endpoint=self.endpoint
        )
        topic = self.rolling.topic.name
        owned = tuple(partition for _, (_, partition) in self.has.active)
        subscription = ConsumerProtocolSubscription(
            topics=(topic,),
            user_data=write_subscription_info(subscription_info),
            owned_partitions=(TopicPartition(topic=topic, partitions=owned),),
        )
        return b"\0\1" + encode(subscription, 1)

    async def join(self) -> JoinGroupResponse:
        while True:
            protocol = JoinGroupRequestProtocol(name="stream", metadata=self.metadata())
            request = JoinGroupRequest(
                group_id=self.rolling.group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            answer = await self.line.ask(request, JoinGroupResponse)
            self.member_id = answer.member_id or self.member_id
            if answer.error_code == Errors.NONE:
                self.generation = answer.generation_id
                return answer
            if answer.error_code != Errors.MEMBER_ID_REQUIRED:
                raise BadAnswer(f"JoinGroup was answered {Errors(answer.error_code).name}")

    async def sync(self, given: tuple[SyncGroupRequestAssignment, ...] = ()) -> Errors:
        request = SyncGroupRequest(
            group_id=self.rolling.group, generation_id=self.generation, member_id=self.member_id,
            protocol_type="consumer", protocol_name="stream", assignments=given,
        )  # fmt: skip
        answer = await self.line.ask(request, SyncGroupResponse)
        if answer.error_code == Errors.NONE:
            assignment = read_assignment(bytes(answer.assignment))
            if assignment is None:
                raise BadAnswer("an assignment cannot be read")
            partitions = tuple((topic, p) for topic, some in assignment.partitions for p in some)
            self.has = read_assignment_info(assignment.user_data, partitions)
        return Errors(answer.error_code)

    async def again(self) -> None:
        """Join and sync until an assignment is received."""
        while True:
            await self.join()
            error = await self.sync()
            if error is Errors.NONE:
                return
            if error is not Errors.REBALANCE_IN_PROGRESS:
                raise BadAnswer(f"SyncGroup was answered {error.name}")

    async def heartbeat(self) -> Errors:
        return Errors((await self.line.ask(self.beat, HeartbeatResponse)).error_code)


class Rolling:
    """An application with `size` threads, and the first member of the next release."""

    def __init__(self, topic: Topic, changelog: Topic) -> None:
        self.group = new_name("group")
        self.topic = topic
        state = (TopicInfo(name=changelog.name),)
        self.topology = Topology(
            subtopologies=(
                Subtopology(subtopology_id="0", source_topics=(topic.name,), state_changelog_topics=state),
            )
        )
        self.threads: list[Thread] = []
        self.member_id = secrets.token_urlsafe(16)
        self.epoch = 0
        self.line: Asking

    def __repr__(self) -> str:
        return f"<{self.group}: {len(self.threads)} threads>"

    async def begin(self, port: int, size: int) -> None:
        """Bring all threads into one generation of a classic group, with assignments of the leader."""
        self.threads = [Thread(self, await asking(port), number) for number in range(size)]
        self.line = await asking(port)
        answers = await asyncio.gather(*(thread.join() for thread in self.threads))
        if {len(answer.members) for answer in answers} != {0, size}:
            raise BadAnswer("the members are not in one generation")
        given = self._given()
        syncs = (
            thread.sync(given if answer.leader == thread.member_id else ())
            for thread, answer in zip(self.threads, answers, strict=True)
        )
        if set(await asyncio.gather(*syncs)) != {Errors.NONE}:
            raise BadAnswer("a member has received no assignment")

    def _given(self) -> tuple[SyncGroupRequestAssignment, ...]:
        """Return each thread's tasks, and standby copies of the next thread's tasks."""
        topic, count = self.topic.name, self.topic.partitions
        given = []
        for number, thread in enumerate(self.threads):
            active = [number * EACH + n for n in range(EACH)]
            copies = [(n + EACH) % count for n in active]
            info = AssignmentInfo(
                LATEST_VERSION,
                LATEST_VERSION,
                tuple((("0", n), (topic, n)) for n in active),
                {("0", n): ((topic, n),) for n in copies},
            )
            written = write_assignment(
                [(topic, tuple(active))], thread.metadata(), write_assignment_info(info)
            )
            given.append(SyncGroupRequestAssignment(member_id=thread.member_id, assignment=written))
        return tuple(given)

    async def beat(self) -> None:
        """Send the heartbeat of the upgraded member, which joins with its first one."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
        )
        if not self.epoch:
            request = request.replace(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, topology=self.topology, process_id=self.member_id,
                active_tasks=(), standby_tasks=(), warmup_tasks=(), task_offsets=(),
            )  # fmt: skip
        answer = await self.line.ask(request, StreamsGroupHeartbeatResponse)
        if answer.error_code:
            raise BadAnswer(f"{Errors(answer.error_code).name}: {answer.error_message}")
        self.epoch = answer.member_epoch

    async def settle(self) -> None:
        """Let all threads heartbeat and rejoin until no response requires an action."""
        for _ in range(100):
            await self.beat()
            errors = await asyncio.gather(*(thread.heartbeat() for thread in self.threads))
            if set(errors) == {Errors.NONE}:
                return
            behind = itertools.compress(self.threads, errors)
            await asyncio.gather(*(thread.again() for thread in behind))
        raise BadAnswer(f"{self!r} does not settle")

    def close(self) -> None:
        for thread in self.threads:
            thread.line.transport.close()
        self.line.transport.close()


def _rolling(lab: Lab, size: int) -> tuple[Running, Rolling, int]:
    running, members = broker(lab, "streams", "kafka", SETTINGS), lab.of(size)
    partitions = EACH * members
    return running, Rolling(make_topic(running, partitions), make_topic(running, partitions)), members


def upgrade(lab: Lab, size: int) -> list[Figure]:
    """Measure the join of one member with the streams protocol, and the rejoins of all others."""
    joins, others = [], []
    for _ in range(lab.windows.runs):
        running, rolling, members = _rolling(lab, size)
        took = run(_upgraded(running, rolling, members))
        joins.append(took[0])
        others.append(took[1])
        report_progress(f"  the upgrade {joins[-1]:.0f} ms of CPU, each of the others {others[-1]:.2f} ms")
    return [less("the upgrade: CPU ms", joins), less("each JoinGroup with its SyncGroup: CPU ms", others)]


async def _upgraded(running: Running, rolling: Rolling, members: int) -> tuple[float, float]:
    await rolling.begin(running.port, members)
    before_s = running.cpu_s()
    await rolling.beat()
    upgraded_s = running.cpu_s()
    await asyncio.gather(*(thread.again() for thread in rolling.threads))
    joined_s = running.cpu_s()
    rolling.close()
    return 1000 * (upgraded_s - before_s), 1000 * (joined_s - upgraded_s) / members


def heartbeat(lab: Lab, size: int) -> list[Figure]:
    """Measure keep-alive heartbeats of the threads that are not upgraded yet."""
    running, rolling, members = _rolling(lab, size)

    async def settled() -> list[HeartbeatRequest]:
        await rolling.begin(running.port, members)
        await rolling.settle()
        rolling.close()
        return [thread.beat for thread in rolling.threads]

    beats = run(settled())
    proven = prove(running, beats[0], HeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(CONNECTIONS, len(frames))
    callers: list[Caller] = [Repeated(frames[i::connections], proven) for i in range(connections)]
    windows = lab.warmed(running, "streams-migration")
    return rates(drive(running.port, callers, 1, windows, running.cpu_s))
