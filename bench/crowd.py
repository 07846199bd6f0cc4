"""Members of a consumer group (KIP-848), and what they know together. What members of a streams group do
otherwise is in bench/instances.py.

A member does what Java's client does: it joins at epoch 0, has one heartbeat under way at a time, sends the
next one an interval after it sent the last, takes another interval from when it receives it, and reports
at once what it owns when that has changed. It gives up its partitions without a moment's thought. Where it
has a name, it tells it in ApiVersions before anything else, for brokers treat clients by their names.

A member is no coroutine but an object that sends prepared bytes: ten thousand of them have to cost less than
the broker that is measured. Each has a connection of its own, but where the system has too few descriptors.

Answer times are measured twice. A member sees an answer when this process reads it, and it may be busy
with thousands of others; the system notes when the answer came, and a request is in the broker's socket when
it has been sent. So the second is what the broker took, and the first what a client on this machine saw.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import struct
import time
from collections import Counter, deque
from typing import Any, ClassVar, NamedTuple

from bench.topics import Topic, new_name
from bench.wire import BEHIND_NUMBER, HOST, NUMBER_AT, BadAnswer, frame_of, read
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

REBALANCE_TIMEOUT_MS = 300_000
JOIN, LEAVE = 0, -1
LATER_S = 0.02
#: How often members heartbeat, whatever interval they receive, where a group is only to be made.
HURRY_S = 0.05
SETTLED_WITHIN_S = 180.0
CONNECT_AT_ONCE = 32

#: The coordinator is not there yet.
LATER = (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR)
#: The member has nothing any more, and joins again.
FENCED = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH)

_numbers = itertools.count(1)


class Software(NamedTuple):
    """What a client says that it is."""

    name: str
    version: str


JAVA = Software("apache-kafka-java", "4.3.1")
NAMELESS = None


class Settled(NamedTuple):
    """When all partitions had an owner for good, and when nobody owed anything, by the monotonic clock."""

    owned_at: float
    stable_at: float


class Crowd:
    """The members of a group, and whether all are at one epoch and have all partitions."""

    def __init__(
        self,
        port: int,
        topic: Topic,
        software: Software | None = NAMELESS,
        *,
        hurries: bool = False,
        kind: type[Consumer] | None = None,
    ) -> None:
        self.port = port
        self.topic = topic
        self.software = software
        self.hurries = hurries
        self.kind = kind or Consumer
        self.group = new_name("group")
        self.members: list[Consumer] = []
        self.at: Counter[int] = Counter()
        self.owned = 0
        self.owing = 0
        self.beats = 0
        self.longest_s = 0.0
        """The longest that anybody waited for an answer since it was set to 0."""
        self.longest_taken_s = 0.0
        """The same until the answer was there to be read."""
        self._owned_at = 0.0
        self._beyond = 0
        self._settled: asyncio.Future[Settled] | None = None
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<{len(self.members)} members at {dict(self.at)}, {self.owned} owned, {self.owing} owe>"

    async def connect(self, members: int = 1) -> list[Consumer]:
        """Members that have a connection, together, and have not joined yet."""
        line = await Line.to(self)
        return [self.kind(self, line) for _ in range(members)]

    async def connect_all(self, count: int, each: int = 1) -> list[Consumer]:
        """So many of them, of whom each some share a connection; some connect at the same time."""
        found: list[Consumer] = []
        while len(found) < count:
            left = -(-(count - len(found)) // each)
            for some in await asyncio.gather(
                *(self.connect(each) for _ in range(min(left, CONNECT_AT_ONCE)))
            ):
                found += some
        return found[:count]

    def add(self, member: Consumer) -> None:
        """Let it join."""
        self.members.append(member)
        self.at[member.epoch] += 1
        if self._failure is not None:
            raise self._failure
        member.join()

    def drop(self, member: Consumer) -> None:
        """It is no member any more, however it goes."""
        self.members.remove(member)
        self._count(member, -1)
        member.has_left = True

    def took(self, member: Consumer, answer: Any) -> bool:
        """Let the member take in an answer; whether it has something to say at once."""
        self._count(member, -1)
        again = member.take(answer)
        self._count(member, 1)
        self._look()
        return again

    def _count(self, member: Consumer, step: int) -> None:
        before = self.owned
        self.at[member.epoch] += step
        if not self.at[member.epoch]:
            del self.at[member.epoch]
        self.owned += step * member.count
        self.owing += step * member.owes
        if step == 1 and self.owned == self.topic.partitions != before:
            self._owned_at = time.monotonic()

    async def settle(self, beyond: int) -> Settled:
        """Return when all are at one epoch beyond this one, with all partitions and nothing to say."""
        if self._failure is not None:
            raise self._failure
        self._beyond = beyond
        self._settled = asyncio.get_running_loop().create_future()
        self._look()
        try:
            return await asyncio.wait_for(self._settled, SETTLED_WITHIN_S)
        except TimeoutError:
            raise BadAnswer(f"not settled in {SETTLED_WITHIN_S:g} s: {self!r}") from None

    def _look(self) -> None:
        waits = self._settled
        if waits is None or waits.done() or self.owing or self.owned != self.topic.partitions:
            return
        if len(self.at) != 1 or next(iter(self.at)) <= self._beyond:
            return
        least = self.topic.partitions // len(self.members)
        if all(member.count >= least for member in self.members):  # no early target, where one has it all
            waits.set_result(Settled(self._owned_at, time.monotonic()))

    @property
    def epoch(self) -> int:
        return max(self.at)

    def failed(self, error: Exception) -> None:
        """A member cannot go on: nor can whoever waits, now or later."""
        self._failure = error
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(error)

    async def end(self) -> None:
        """All leave, and their connections close."""
        members = list(self.members)
        for member in members:
            self.drop(member)
            member.leave()
        await asyncio.sleep(0.05)
        for member in members:
            member.close()


#: Linux notes when something came (SO_TIMESTAMPNS), and says so beside it.
STAMPS = 35
STAMP = struct.Struct("@ll")
MOST_BYTES = 64 * 1024


class Line:
    """A connection; its answers are for those who asked, in their order."""

    def __init__(self, crowd: Crowd, sock: socket.socket) -> None:
        self.crowd = crowd
        self.asked: deque[Consumer] = deque()
        self.is_over = False
        self.came_at = 0.0
        """When what is being read came, by the wall clock."""
        self._socket = sock
        self._come = b""

    def __repr__(self) -> str:
        return f"<connection with {len(self.asked)} under way>"

    @classmethod
    async def to(cls, crowd: Crowd) -> Line:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, STAMPS, 1)
        await loop.sock_connect(sock, (HOST, crowd.port))
        line = cls(crowd, sock)
        loop.add_reader(sock, line._read)
        return line

    def ask(self, member: Consumer, frame: bytes) -> None:
        if self.is_over:
            return
        self.asked.append(member)
        if self._socket.send(frame) != len(frame):  # A few hundred bytes, and one that reads them.
            self.crowd.failed(ConnectionError("the broker does not read"))

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _read(self) -> None:
        try:
            data, beside, _, _ = self._socket.recvmsg(MOST_BYTES, 64)
        except OSError as error:
            self._lost(error)
            return
        if not data:
            self._lost(ConnectionError("the broker closed a member's connection"))
            return
        self.came_at = time.time()
        for level, kind, answer in beside:
            if (level, kind) == (socket.SOL_SOCKET, STAMPS):
                seconds, nanoseconds = STAMP.unpack(answer[: STAMP.size])
                self.came_at = seconds + nanoseconds / 1e9
        self._come = self._come + data if self._come else data
        while len(self._come) >= 4 and not self.is_over:
            behind = 4 + int.from_bytes(self._come[:4], "big")
            if behind > len(self._come):
                break
            body, self._come = self._come[4:behind], self._come[behind:]
            self.asked.popleft().answered(body)

    def _lost(self, error: Exception) -> None:
        self.close()
        self.crowd.failed(error)


class Consumer:
    """One member."""

    ANSWER: ClassVar[type[Any]] = ConsumerGroupHeartbeatResponse

    def __init__(self, crowd: Crowd, line: Line) -> None:
        self.crowd = crowd
        self.line = line
        self.member_id = secrets.token_urlsafe(16)
        self.epoch = JOIN
        self.owns: tuple[Any, ...] = ()
        self.count = 0
        self.owes = False
        """It has yet to say what it owns."""
        self.interval_s = 5.0
        self.has_left = False
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._sent_wall = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._frame = b""
        self._same = b""
        """The answer to the last heartbeat that said nothing, which said nothing either."""
        self._greets = False

    def __repr__(self) -> str:
        return f"<member {self.member_id} at {self.epoch}, owns {self.count}>"

    # --- what it sends ---

    def join(self) -> None:
        software = self.crowd.software
        if software is None:
            self._beat()
            return
        self._greets = True
        request = ApiVersionsRequest(
            client_software_name=software.name, client_software_version=software.version
        )
        self.line.ask(self, frame_of(request))

    def leave(self) -> None:
        self.line.ask(self, frame_of(self._leave_request()))

    def close(self) -> None:
        """Without a farewell."""
        self.has_left = True
        if self._timer is not None:
            self._timer.cancel()
        self.line.close()

    def _beat(self) -> None:
        if self.has_left:
            return
        if not self._frame:
            self._frame = frame_of(self._request())
        frame, number = self._frame, next(_numbers).to_bytes(4, "big")
        self._sent_at = time.monotonic()
        self._sent_wall = time.time()
        self.crowd.beats += 1
        self.line.ask(self, frame[:NUMBER_AT] + number + frame[BEHIND_NUMBER:])

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
        return request.replace(topic_partitions=self.owns) if self.owes else request

    # --- answers ---

    def answered(self, body: bytes) -> None:
        if self._greets:
            self._greets = False
            self._beat()
        elif not self.has_left:
            self._answered(body)

    def _answered(self, body: bytes) -> None:
        crowd, now = self.crowd, time.monotonic()
        crowd.longest_s = max(crowd.longest_s, now - self._sent_at)
        crowd.longest_taken_s = max(crowd.longest_taken_s, self.line.came_at - self._sent_wall)
        if body[4:] == self._same and not self.owes:
            self._next(self._sent_at + self.interval_s, now)
            return
        answer: Any = read(self.ANSWER, body)
        code = Errors(answer.error_code)
        if code in LATER:
            self._next(now + LATER_S, now)
        elif code in FENCED:
            crowd.took(self, self.ANSWER(member_epoch=JOIN))
            self._beat()
        elif code:
            crowd.failed(BadAnswer(f"a member received {code.name}: {answer.error_message}"))
        else:
            before_s = self.interval_s
            self.interval_s = HURRY_S if crowd.hurries else answer.heartbeat_interval_ms / 1000
            self._same = body[4:] if self._given(answer) is None else b""
            if crowd.took(self, answer):
                self._beat()
            else:
                since = self._sent_at if self.interval_s == before_s else now
                self._next(since + self.interval_s, now)

    def take(self, answer: Any) -> bool:
        """Apply the epoch and assignment of an answer; return True if the next heartbeat is due at once."""
        given = self._given(answer)
        if self.owes or answer.member_epoch != self.epoch or given is not None:
            self._frame = b""
        self.owes = given is not None
        self.epoch = answer.member_epoch
        if given is not None or answer.member_epoch == JOIN:
            self.owns = given or ()
            self.count = sum(len(topic.partitions) for topic in self.owns)
        return self.owes

    def _given(self, answer: Any) -> tuple[Any, ...] | None:
        """Return the target assignment in an answer, if there is one."""
        given: tuple[TopicPartitions, ...] | None = answer.assignment and answer.assignment.topic_partitions
        return given

    def _next(self, at: float, now: float) -> None:
        self._timer = self._loop.call_later(max(0.0, at - now), self._beat)
