"""Members of a classic group, each with a connection of its own, that join at the same time.

A member joins, receives a member id, joins again, syncs, and heartbeats until it has to rejoin. The rebalance
is complete when all have synced in one generation whose leader knew all members.
"""

from __future__ import annotations

import asyncio
import time

from bench.figures import RSS, Figure, at_rank, less
from bench.systems import Lab, Running, report_progress
from bench.topics import Topic, make_topic, new_name, wait_for_coordinator
from bench.wire import Asking, BadAnswer, asking, frame_of, read
from konvene.codec.compile import encode
from konvene.errors import Errors
from konvene.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
#: How often a member of a storm heartbeats, as clients do, and one of a group that is only to be made.
AS_CLIENTS_S = 3.0
AT_ONCE_S = 0.05
SETTLED_WITHIN_S = 120

#: The member must join again, under the id that it has.
AGAIN = (Errors.REBALANCE_IN_PROGRESS, Errors.ILLEGAL_GENERATION)
#: The coordinator is not there yet.
LATER = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
    Errors.REBALANCE_IN_PROGRESS,
)


class Storm:
    """Simultaneous joins of a new group, and whether all members are in one generation."""

    def __init__(
        self, topic: Topic, size: int, heartbeat_s: float, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.group = new_name("group")
        self.topic = topic
        self.size = size
        self.heartbeat_s = heartbeat_s
        self.known: dict[int, int] = {}
        self.synced: dict[str, int] = {}
        self.over = asyncio.Event()
        subscription = b"\0\1" + encode(ConsumerProtocolSubscription(topics=(topic.name,)), 1)
        self.protocols = (JoinGroupRequestProtocol(name="range", metadata=subscription),)

    def __repr__(self) -> str:
        return f"<storm of {self.size}, {len(self.synced)} synced, over {self.over.is_set()}>"

    async def blow(self, lines: list[Asking]) -> list[HeartbeatRequest]:
        """Let all members join; return a heartbeat for each member of the resulting generation."""
        async with asyncio.timeout(SETTLED_WITHIN_S), asyncio.TaskGroup() as members:
            for line in lines:
                members.create_task(self._live(line))
        return [
            HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member_id)
            for member_id, generation in self.synced.items()
        ]

    async def _live(self, line: Asking) -> None:
        member_id = ""
        while not self.over.is_set():
            joined = await self._join(line, member_id)
            member_id = joined.member_id
            code = (await line.ask(self._sync(joined), SyncGroupResponse)).error_code
            if code == Errors.NONE:
                self._note(member_id, joined.generation_id)
                code = await self._beat(line, member_id, joined.generation_id)
            if code == Errors.UNKNOWN_MEMBER_ID:
                member_id = ""
            elif code not in (Errors.NONE, *AGAIN):
                raise BadAnswer(f"a member received {Errors(code).name}")

    async def _join(self, line: Asking, member_id: str) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=self.protocols,
            )
            answer = await line.ask(request, JoinGroupResponse)
            if answer.error_code == Errors.NONE:
                return answer
            if answer.error_code == Errors.MEMBER_ID_REQUIRED:
                member_id = answer.member_id
            elif answer.error_code == Errors.UNKNOWN_MEMBER_ID:
                member_id = ""
            elif answer.error_code in LATER:
                await asyncio.sleep(0.02)
            else:
                raise BadAnswer(f"JoinGroup was answered {Errors(answer.error_code).name}")

    def _sync(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            self.known[joined.generation_id] = len(joined.members)
            each = max(1, self.topic.partitions // len(joined.members))
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=self._part(range(i * each, (i + 1) * each))
                )
                for i, member in enumerate(joined.members)
            )
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    def _part(self, partitions: range) -> bytes:
        part = ConsumerProtocolAssignmentTopicPartition(topic=self.topic.name, partitions=tuple(partitions))
        return b"\0\1" + encode(ConsumerProtocolAssignment(assigned_partitions=(part,)), 1)

    def _note(self, member_id: str, generation: int) -> None:
        self.synced[member_id] = generation
        all_known = self.known.get(generation) == self.size
        if all_known and sum(g == generation for g in self.synced.values()) == self.size:
            self.over.set()

    async def _beat(self, line: Asking, member_id: str, generation: int) -> int:
        """Heartbeat until a rebalance is required or the joins are complete."""
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member_id)
        while True:
            try:
                await asyncio.wait_for(self.over.wait(), self.heartbeat_s)
                return Errors.NONE
            except TimeoutError:
                code = (await line.ask(request, HeartbeatResponse)).error_code
                if code:
                    return code


async def make_group(
    port: int, topic: Topic, size: int, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> list[HeartbeatRequest]:
    """Create a stable group whose members have no open connections."""
    lines = [await asking(port) for _ in range(size)]
    beats = await Storm(topic, size, AT_ONCE_S, session_timeout_ms).blow(lines)
    for line in lines:
        line.transport.close()
    return beats


def storm(lab: Lab, size: int) -> list[Figure]:
    """Measure milliseconds from the first JoinGroup until all members have synced in one generation."""
    from bench.drive import run

    running, members = lab.shared(), lab.of(size)
    topic = make_topic(running, 2 * members)
    wait_for_coordinator(running, "storm")
    if lab.warmed(running, "join").warm_s >= 1:
        for _ in range(3 if lab.system == "konvene" else 10):
            run(_blow_once(running, topic, lab.of(100)))
    found = []
    for _ in range(max(lab.windows.runs, 1)):
        found.append(run(_blow_once(running, topic, members)))
        report_progress(f"  {found[-1][0]:.0f} ms")
    return [less("ms", (f[0] for f in found)), less("CPU ms", (f[1] for f in found))]


async def _blow_once(running: Running, topic: Topic, size: int) -> tuple[float, float]:
    lines = [await asking(running.port) for _ in range(size)]
    cpu, began = running.cpu_s(), time.perf_counter()
    blowing = Storm(topic, size, AS_CLIENTS_S)
    beats = asyncio.create_task(blowing.blow(lines))
    over = asyncio.create_task(blowing.over.wait())
    await asyncio.wait((over, beats), return_when=asyncio.FIRST_COMPLETED)
    took = 1000 * (time.perf_counter() - began), 1000 * (running.cpu_s() - cpu)
    over.cancel()
    left = tuple(MemberIdentity(member_id=b.member_id) for b in await beats)
    await lines[0].ask(LeaveGroupRequest(group_id=blowing.group, members=left), LeaveGroupResponse)
    for line in lines:
        line.transport.close()
    return took


MEMBERS, A_GROUP = 5_000, 100
BEAT_EVERY_S = 5.0
"""Heartbeat interval, that of consumer, share and streams groups; classic members heartbeat every three
seconds."""


def quiet_day(lab: Lab) -> list[Figure]:
    """Measure the cost of 5,000 members that only send heartbeats, each on a connection of its own."""
    from bench.drive import run

    running, groups = lab.shared(), max(lab.of(MEMBERS) // A_GROUP, 1)
    topic = make_topic(running, A_GROUP)
    wait_for_coordinator(running, "quiet")
    share, beats = run(_quiet_day(running, topic, groups, lab))
    milliseconds = [1000 * at_rank(beats, part) for part in (0.5, 0.99)]
    return [
        less("CPU, % of a core", [share]),
        less("p50, ms", milliseconds[:1]),
        less("p99, ms", milliseconds[1:]),
        less(RSS, [running.rss_mib()]),
    ]


async def _quiet_day(running: Running, topic: Topic, groups: int, lab: Lab) -> tuple[float, list[float]]:
    """Return percent of a core, and the latency of each heartbeat."""
    every_s = BEAT_EVERY_S / lab.shrink
    lines: list[Asking] = []
    members: list[asyncio.Task[None]] = []
    took: list[float] = []

    async def live(line: Asking, frame: bytes, later_s: float) -> None:
        await asyncio.sleep(later_s)
        while True:
            began = time.perf_counter()
            answer = await line.exchange(frame)
            if read(HeartbeatResponse, answer).error_code:
                raise BadAnswer("a heartbeat was refused")
            took.append(time.perf_counter() - began)
            await asyncio.sleep(every_s)

    for _ in range(groups):
        beats = await make_group(running.port, topic, lab.of(A_GROUP))
        for at, beat in enumerate(beats):
            lines.append(await asking(running.port))
            living = live(lines[-1], frame_of(beat), every_s * at / len(beats))
            members.append(asyncio.create_task(living))
    await asyncio.sleep(every_s)
    took.clear()
    cpu, began = running.cpu_s(), time.perf_counter()
    done, _ = await asyncio.wait(members, timeout=3 * every_s, return_when=asyncio.FIRST_COMPLETED)
    share = 100 * (running.cpu_s() - cpu) / (time.perf_counter() - began)
    for member in members:
        member.cancel()
    for member in done:
        member.result()
    for line in lines:
        line.transport.close()
    return share, sorted(took)
