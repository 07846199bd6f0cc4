"""History of the clients of an end-to-end run: requests, responses, records sent and read.

Every attempt of a request is recorded when it is sent and when its future completes, so a retry within the
client is a separate attempt. An attempt without a response may take effect at any later time:
its bytes may still be in flight on an abandoned connection. Only one question is decided here: which offsets
a group may have committed (`may_be_committed`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from konvene.client.net.cluster import TopicPartition
from konvene.client.net.connection import Connection
from konvene.client.net.settings import ClientSettings
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import Api
from konvene.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from konvene.messages.offset_fetch import OffsetFetchResponse

__all__ = ["History", "PendingRequest", "Sent", "recording_connector"]

GroupPartition = tuple[str, str, int]
"""A group, and a partition for which it commits offsets."""

REJECTED_COMMIT_ERRORS = frozenset(
    (
        Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID,
        Errors.REBALANCE_IN_PROGRESS, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.INVALID_GROUP_ID,
        Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.OFFSET_METADATA_TOO_LARGE,
    )
)  # fmt: skip
"""Errors of a commit that guarantee that it changed nothing; after any other error it may have."""

MANY = 64


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that a producer sent to the partition `place`; `number` counts the producer's records."""

    producer: str
    number: int
    place: TopicPartition
    idempotent: bool


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request without a response yet. It was sent at `began` on the history's logical clock, which is
    `began_s` seconds on the event loop's clock."""

    client_id: str
    api: Api
    request: Struct
    began: int
    began_s: float
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt to commit an offset of one partition, whose request was sent at `began` on the history's
    clock.

    `ended` is when its success was received; while it is None, the commit may still take effect."""

    offset: int
    began: int
    ended: int | None = None
    acknowledged: bool = False


class History:
    """The requests and responses of all clients, and the records that they sent.

    `clock` is a logical clock, which advances with each request and each response to a commit."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.clock = 0
        self.sent: dict[bytes, Sent] = {}
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.unchecked: list[tuple[TopicPartition, int, bytes]] = []
        """Acknowledged records that were not checked yet."""
        self.commits: dict[GroupPartition, list[Attempt]] = defaultdict(list)
        self.open: dict[PendingRequest, None] = {}
        self.answers: Counter[str] = Counter()
        self.timed_out = 0
        self.commits_acknowledged = 0
        self.on_offsets: Callable[[GroupPartition, int, int], None] = lambda place, offset, began: None
        """Called with each OffsetFetch result: partition, offset (-1: none), and when it was requested."""
        self.on_answer: Callable[[PendingRequest, Struct], None] = lambda pending, answer: None
        """Called with every response."""

    def __repr__(self) -> str:
        return f"<history: {len(self.sent)} records sent, {len(self.open)} requests open>"

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # --- records ---

    def acknowledge(self, value: bytes, offset: int) -> None:
        place = self.sent[value].place
        self.acknowledged[place][offset] = value
        self.unchecked.append((place, offset, value))

    # --- requests ---

    def request_sent(self, client_id: str, api: Api, request: Struct, timeout_ms: int) -> PendingRequest:
        found = PendingRequest(client_id, api, request, self.tick(), self._now(), timeout_ms)
        self.open[found] = None
        if isinstance(request, OffsetCommitRequest):
            for place, offset in _committed_offsets(request):
                self.commits[place].append(Attempt(offset, found.began))
        return found

    def request_completed(self, pending: PendingRequest, future: asyncio.Future[Struct]) -> None:
        """Record the response in `future` to a pending request, or that the request failed or timed out."""
        self.open.pop(pending, None)
        name = pending.api.name
        if future.cancelled():
            self.answers[f"{name} cancelled"] += 1
            return
        error = future.exception()
        if error is not None:
            self.answers[f"{name} {type(error).__name__}"] += 1
            self.timed_out += type(error).__name__ == "RequestTimedOut"
            return
        answer = future.result()
        self.answers[f"{name} {_code_name(first_error(answer))}"] += 1
        if isinstance(answer, OffsetCommitResponse):
            self._committed(pending, answer)
        elif isinstance(answer, OffsetFetchResponse):
            self._fetched(pending, answer)
        self.on_answer(pending, answer)

    def client_died(self, client_id: str) -> None:
        """Remove the requests of a client that died from the pending ones; its pending commits may still take
        effect."""
        for pending in [pending for pending in self.open if pending.client_id == client_id]:
            del self.open[pending]
            self.answers[f"{pending.api.name} died"] += 1

    # --- commits ---

    def _committed(self, pending: PendingRequest, answer: OffsetCommitResponse) -> None:
        now = self.tick()
        request = pending.request
        assert isinstance(request, OffsetCommitRequest), f"{request!r} is answered by {answer!r}"
        for topic in answer.topics:
            for row in topic.partitions:
                place = (request.group_id, topic.name, row.partition_index)
                attempts = self.commits[place]
                attempt = next((a for a in attempts if a.began == pending.began), None)
                if attempt is None:
                    continue
                if row.error_code == 0:
                    attempt.acknowledged, attempt.ended = True, now
                    self.commits_acknowledged += 1
                elif row.error_code in REJECTED_COMMIT_ERRORS:
                    attempts.remove(attempt)
                if len(attempts) > MANY:
                    self.commits[place] = self._readable_attempts(attempts)

    def _readable_attempts(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return `attempts` without those commits that no pending or later OffsetFetch may return, because a
        newer commit was acknowledged before it was sent."""
        oldest = next(iter(self.open)).began if self.open else self.clock
        floor = max((a.began for a in attempts if a.ended is not None and a.ended < oldest), default=0)
        return [a for a in attempts if a.ended is None or a.ended >= floor]

    def _fetched(self, pending: PendingRequest, answer: OffsetFetchResponse) -> None:
        for group in answer.groups:
            for topic in group.topics:
                for row in topic.partitions:
                    if row.error_code == 0:
                        place = (group.group_id, topic.name, row.partition_index)
                        self.on_offsets(place, row.committed_offset, pending.began)

    def may_be_committed(self, place: GroupPartition, offset: int, began: int) -> bool:
        """Return True if an OffsetFetch that was sent at `began` may return this offset (-1: no committed
        offset).

        It may if a client has sent a commit of this offset, and no other commit both began after that one was
        acknowledged and was itself acknowledged before `began`. -1 is possible until a commit is
        acknowledged."""
        attempts = self.commits.get(place, [])
        floor = max((a.began for a in attempts if a.ended is not None and a.ended < began), default=0)
        if offset < 0:
            return floor == 0
        return any(a.offset == offset and (a.ended is None or a.ended >= floor) for a in attempts)

    def committed(self, place: GroupPartition) -> str:
        """Return the last six commits of a partition as text for a violation, each with the logical times of
        request and response."""
        rows = self.commits.get(place, [])[-6:]
        return ", ".join(f"{a.offset} ({a.began}..{'?' if a.ended is None else a.ended})" for a in rows)


def recording_connector(
    history: History, client_id: str, settings: ClientSettings, base: type[Connection] = Connection
) -> Callable[[str, int], Awaitable[Connection]]:
    """Return a `connect` function for `Cluster` that records each request in the history.

    Its connections are of a subclass of `base`."""

    class Watched(base):  # type: ignore[valid-type, misc]
        def _start(
            self, request: Struct, api: Api, version: int, timeout_ms: int | None
        ) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = super()._start(request, api, version, timeout_ms)
            wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
            pending = history.request_sent(client_id, api, request, wait_ms)
            future.add_done_callback(lambda done: history.request_completed(pending, done))
            return future

    async def connect(host: str, port: int) -> Connection:
        connection: Connection = await Watched.open(
            host, port, client_id=settings.client_id, request_timeout_ms=settings.request_timeout_ms,
            connect_timeout_ms=settings.connect_timeout_ms, security=settings.security,
        )  # fmt: skip
        return connection

    return connect


def _committed_offsets(request: OffsetCommitRequest) -> list[tuple[GroupPartition, int]]:
    return [
        ((request.group_id, topic.name, row.partition_index), row.committed_offset)
        for topic in request.topics
        for row in topic.partitions
    ]


def first_error(answer: Struct, depth: int = 4) -> int:
    """Return the first error code other than 0 in a response, or 0 if there is none.

    Structs in the response are searched, too, nested down to `depth` levels."""
    code = getattr(answer, "error_code", 0)
    if code or depth == 0:
        return int(code)
    for field in getattr(answer, "__fields__", ()):
        value = getattr(answer, field.name)
        if isinstance(value, tuple):
            for item in value:
                if not isinstance(item, Struct):
                    break
                code = first_error(item, depth - 1)
                if code:
                    return code
    return 0


def _code_name(code: int) -> str:
    return Errors(code).name
