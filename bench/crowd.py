"""Simulated members of consumer groups (KIP-848) for load tests, and the shared state of one group's members.

A member behaves like Java's client: it joins with epoch 0, has one heartbeat in flight, sends the next one an
interval after the previous, adopts a new interval from its arrival on, and reports changed ownership at once.
It revokes partitions immediately. With a client name, it sends ApiVersions first, since brokers treat clients
by name. `bench/instances.py` has the members of streams groups.

A member is an object that sends prepared bytes, not a coroutine: ten thousand of them must cost less than the
measured broker. Each has a connection of its own unless the system has too few descriptors.

Response times are measured twice: until this process reads the response, which may be late while it handles
thousands of others, and until the kernel received it. The second is the response time of the broker, the
first what a client on this machine observes.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import struct
import time
from collections import Counter, deque
from typing import ClassVar, NamedTuple

from bench.topics import Topic, new_name
from bench.wire import AFTER_NUMBER, HOST, NUMBER_AT, BadAnswer, frame_of, read
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from konvene.messages.share_group_heartbeat import TopicPartitions as SharePartitions
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse, TaskIds

REBALANCE_TIMEOUT_MS = 300_000
JOIN, LEAVE = 0, -1
RETRY_S = 0.02
#: Heartbeat interval of members that only set a group up, instead of the received interval.
SETUP_INTERVAL_S = 0.05
SETTLED_WITHIN_S = 180.0
CONNECT_AT_ONCE = 32

#: The coordinator is not available yet.
RETRIABLE = (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR)
#: The member drops all partitions and joins again.
FENCED = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH)

HeartbeatResponse = (
    ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse
)
Owned = tuple[TopicPartitions, ...] | tuple[SharePartitions, ...] | tuple[TaskIds, ...]
"""What a member owns: partitions or active tasks."""

_numbers = itertools.count(1)


class Software(NamedTuple):
    """Client software name and version of ApiVersions."""

    name: str
    version: str


JAVA = Software("apache-kafka-java", "4.3.1")
UNNAMED = None


class Settled(NamedTuple):
    """The times (monotonic clock) when all partitions had their final owner, and when no member had anything
    left to report."""

    owned_at: float
    stable_at: float


class Crowd:
    """The members of a group, and whether all are at one epoch with all partitions owned."""

    def __init__(
        self,
        port: int,
        topic: Topic,
        software: Software | None = UNNAMED,
        *,
        fast_setup: bool = False,
        kind: type[Consumer] | None = None,
    ) -> None:
        self.port = port
        self.topic = topic
        self.software = software
        self.fast_setup = fast_setup
        self.kind = kind or Consumer
        self.group = new_name("group")
        self.members: list[Consumer] = []
        self.at: Counter[int] = Counter()
        self.owned = 0
        self.unreported = 0
        self.heartbeats = 0
        self.longest_s = 0.0
        """Longest response time since it was set to 0, until the response was read."""
        self.longest_received_s = 0.0
        """Longest response time since it was set to 0, until the response was received."""
        self._owned_at = 0.0
        self._beyond = 0
        self._settled: asyncio.Future[Settled] | None = None
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        counts = f"{self.owned} owned, {self.unreported} unreported"
        return f"<{len(self.members)} members at {dict(self.at)}, {counts}>"

    async def connect(self, members: int = 1) -> list[Consumer]:
        """Return members that share one new connection and have not joined yet."""
        line = await Line.to(self)
        return [self.kind(self, line) for _ in range(members)]

    async def connect_all(self, count: int, each: int = 1) -> list[Consumer]:
        """Return `count` members, `each` per connection; some connect concurrently."""
        found: list[Consumer] = []
        while len(found) < count:
            left = -(-(count - len(found)) // each)
            for some in await asyncio.gather(
                *(self.connect(each) for _ in range(min(left, CONNECT_AT_ONCE)))
            ):
                found += some
        return found[:count]

    def add(self, member: Consumer) -> None:
        """Add a member to the group and let it join."""
        self.members.append(member)
        self.at[member.epoch] += 1
        if self._failure is not None:
            raise self._failure
        member.join()

    def drop(self, member: Consumer) -> None:
        """Remove a member from the group."""
        self.members.remove(member)
        self._count(member, -1)
        member.has_left = True

    def apply_response(self, member: Consumer, answer: HeartbeatResponse) -> bool:
        """Apply a response to a member; return True if its next heartbeat is due at once."""
        self._count(member, -1)
        again = member.apply(answer)
        self._count(member, 1)
        self._check_settled()
        return again

    def _count(self, member: Consumer, step: int) -> None:
        before = self.owned
        self.at[member.epoch] += step
        if not self.at[member.epoch]:
            del self.at[member.epoch]
        self.owned += step * member.count
        self.unreported += step * member.has_unreported
        if step == 1 and self.owned == self.topic.partitions != before:
            self._owned_at = time.monotonic()

    async def settle(self, beyond: int) -> Settled:
        """Wait until all members are at one epoch after `beyond`, with all partitions owned and nothing to
        report."""
        if self._failure is not None:
            raise self._failure
        self._beyond = beyond
        self._settled = asyncio.get_running_loop().create_future()
        self._check_settled()
        try:
            return await asyncio.wait_for(self._settled, SETTLED_WITHIN_S)
        except TimeoutError:
            raise BadAnswer(f"not settled in {SETTLED_WITHIN_S:g} s: {self!r}") from None

    def _check_settled(self) -> None:
        future = self._settled
        if future is None or future.done() or self.unreported or self.owned != self.topic.partitions:
            return
        if len(self.at) != 1 or next(iter(self.at)) <= self._beyond:
            return
        least = self.topic.partitions // len(self.members)
        if all(
            member.count >= least for member in self.members
        ):  # Excludes an early target, where one member has all.
            future.set_result(Settled(self._owned_at, time.monotonic()))

    @property
    def epoch(self) -> int:
        return max(self.at)

    def failed(self, error: Exception) -> None:
        """Fail the current and later calls of `settle` with the error of a member."""
        self._failure = error
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(error)

    async def end(self) -> None:
        """Let all members leave and close their connections."""
        members = list(self.members)
        for member in members:
            self.drop(member)
            member.leave()
        await asyncio.sleep(0.05)
        for member in members:
            member.close()


#: Linux socket option that adds receive times as ancillary data (SO_TIMESTAMPNS).
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@ll")
READ_BYTES = 64 * 1024


class Line:
    """A connection that several members may share; responses arrive in the order of the requests."""

    def __init__(self, crowd: Crowd, sock: socket.socket) -> None:
        self.crowd = crowd
        self.pending: deque[Consumer] = deque()
        self.is_closed = False
        self.received_at = 0.0
        """Wall-clock time at which the data being read was received."""
        self._socket = sock
        self._received = b""

    def __repr__(self) -> str:
        return f"<connection with {len(self.pending)} pending>"

    @classmethod
    async def to(cls, crowd: Crowd) -> Line:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        await loop.sock_connect(sock, (HOST, crowd.port))
        line = cls(crowd, sock)
        loop.add_reader(sock, line._read)
        return line

    def ask(self, member: Consumer, frame: bytes) -> None:
        if self.is_closed:
            return
        self.pending.append(member)
        if self._socket.send(frame) != len(frame):  # A few hundred bytes fit into the socket's buffer.
            self.crowd.failed(ConnectionError("the broker does not read"))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(READ_BYTES, 64)
        except OSError as error:
            self._lost(error)
            return
        if not data:
            self._lost(ConnectionError("the broker closed a member's connection"))
            return
        self.received_at = time.time()
        for level, kind, answer in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = TIMESPEC.unpack(answer[: TIMESPEC.size])
                self.received_at = seconds + nanoseconds / 1e9
        self._received = self._received + data if self._received else data
        while len(self._received) >= 4 and not self.is_closed:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if end > len(self._received):
                break
            body, self._received = self._received[4:end], self._received[end:]
            self.pending.popleft().response_received(body)

    def _lost(self, error: Exception) -> None:
        self.close()
        self.crowd.failed(error)


class Consumer:
    """A member of the group."""

    ANSWER: ClassVar[type[HeartbeatResponse]] = ConsumerGroupHeartbeatResponse

    def __init__(self, crowd: Crowd, line: Line) -> None:
        self.crowd = crowd
        self.line = line
        self.member_id = secrets.token_urlsafe(16)
        self.epoch = JOIN
        self.owns: Owned = ()
        self.count = 0
        self.has_unreported = False
        """True while changed ownership is not reported yet."""
        self.interval_s = 5.0
        self.has_left = False
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._sent_wall = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._frame = b""
        self._keep_alive_response = b""
        """Response to the last keep-alive heartbeat, if that response changed nothing."""
        self._awaits_api_versions = False

    def __repr__(self) -> str:
        return f"<member {self.member_id} at {self.epoch}, owns {self.count}>"

    # --- requests ---

    def join(self) -> None:
        software = self.crowd.software
        if software is None:
            self._heartbeat()
            return
        self._awaits_api_versions = True
        request = ApiVersionsRequest(
            client_software_name=software.name, client_software_version=software.version
        )
        self.line.ask(self, frame_of(request))

    def leave(self) -> None:
        self.line.ask(self, frame_of(self._leave_request()))

    def close(self) -> None:
        """Close the connection without leaving the group."""
        self.has_left = True
        if self._timer is not None:
            self._timer.cancel()
        self.line.close()

    def _heartbeat(self) -> None:
        if self.has_left:
            return
        if not self._frame:
            self._frame = frame_of(self._request())
        frame, number = self._frame, next(_numbers).to_bytes(4, "big")
        self._sent_at = time.monotonic()
        self._sent_wall = time.time()
        self.crowd.heartbeats += 1
        self.line.ask(self, frame[:NUMBER_AT] + number + frame[AFTER_NUMBER:])

    def _leave_request(self) -> Struct:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.crowd.group, member_id=self.member_id, member_epoch=LEAVE
        )

    def _request(self) -> Struct:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.crowd.group, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == JOIN:
            return request.replace(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=(self.crowd.topic.name,),
                topic_partitions=(),
            )
        return request.replace(topic_partitions=self.owns) if self.has_unreported else request

    # --- responses ---

    def response_received(self, body: bytes) -> None:
        if self._awaits_api_versions:
            self._awaits_api_versions = False
            self._heartbeat()
        elif not self.has_left:
            self._handle_response(body)

    def _handle_response(self, body: bytes) -> None:
        crowd, now = self.crowd, time.monotonic()
        crowd.longest_s = max(crowd.longest_s, now - self._sent_at)
        crowd.longest_received_s = max(crowd.longest_received_s, self.line.received_at - self._sent_wall)
        if body[4:] == self._keep_alive_response and not self.has_unreported:
            self._schedule(self._sent_at + self.interval_s, now)
            return
        answer: HeartbeatResponse = read(self.ANSWER, body)
        code = Errors(answer.error_code)
        if code in RETRIABLE:
            self._schedule(now + RETRY_S, now)
        elif code in FENCED:
            crowd.apply_response(self, self.ANSWER(member_epoch=JOIN))
            self._heartbeat()
        elif code:
            crowd.failed(BadAnswer(f"a member received {code.name}: {answer.error_message}"))
        else:
            before_s = self.interval_s
            self.interval_s = SETUP_INTERVAL_S if crowd.fast_setup else answer.heartbeat_interval_ms / 1000
            self._keep_alive_response = body[4:] if self._given(answer) is None else b""
            if crowd.apply_response(self, answer):
                self._heartbeat()
            else:
                since = self._sent_at if self.interval_s == before_s else now
                self._schedule(since + self.interval_s, now)

    def apply(self, answer: HeartbeatResponse) -> bool:
        """Apply the epoch and assignment of an answer; return True if the next heartbeat is due at once."""
        given = self._given(answer)
        if self.has_unreported or answer.member_epoch != self.epoch or given is not None:
            self._frame = b""
        self.has_unreported = given is not None
        self.epoch = answer.member_epoch
        if given is not None or answer.member_epoch == JOIN:
            self.owns = given or ()
            self.count = sum(len(topic.partitions) for topic in self.owns)
        return self.has_unreported

    def _given(self, answer: HeartbeatResponse) -> Owned | None:
        """Return the target assignment in an answer, if there is one."""
        assert not isinstance(answer, StreamsGroupHeartbeatResponse)
        return None if answer.assignment is None else answer.assignment.topic_partitions

    def _schedule(self, at: float, now: float) -> None:
        self._timer = self._loop.call_later(max(0.0, at - now), self._heartbeat)
