"""What the clients of a whole run know: what they asked, what they were told, what they sent and read.

Every request of every client passes `asked` on its way out and `told` when its future ends, so a retry within
the client is an attempt of its own here. An attempt without an answer may take effect at any time, even long
afterwards: its bytes may still be under way on a connection that nobody reads any more. Nothing is judged in
this file but one question: which offsets a group may be told to have committed (`may_be_committed`).
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

__all__ = ["Asked", "History", "Sent", "connecting"]

Place = tuple[str, str, int]
"""A group, and a partition of which it commits offsets."""

CERTAINLY_NOT = frozenset(
    (
        Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID,
        Errors.REBALANCE_IN_PROGRESS, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.INVALID_GROUP_ID,
        Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.OFFSET_METADATA_TOO_LARGE,
    )
)  # fmt: skip
"""Answers to a commit that say that it changed nothing. After any other error it may have."""

MANY = 64


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as its producer knows it."""

    producer: str
    number: int
    place: TopicPartition
    idempotent: bool


@dataclass(slots=True, eq=False)
class Asked:
    """A request under way."""

    who: str
    api: Api
    request: Struct
    began: int
    began_s: float
    timeout_ms: int


@dataclass(slots=True, eq=False)
class Attempt:
    """A commit of one partition. `ended` is None as long as it may still take effect."""

    offset: int
    began: int
    ended: int | None = None
    acknowledged: bool = False


class History:
    """Everything that clients know, in the order in which they learnt it (`clock`)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.clock = 0
        self.sent: dict[bytes, Sent] = {}
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.news: list[tuple[TopicPartition, int, bytes]] = []
        """What was acknowledged and not looked at since."""
        self.commits: dict[Place, list[Attempt]] = defaultdict(list)
        self.open: dict[Asked, None] = {}
        self.answers: Counter[str] = Counter()
        self.timed_out = 0
        self.commits_acknowledged = 0
        self.on_offsets: Callable[[Place, int, int], None] = lambda place, offset, began: None
        """Is told what OffsetFetch answered: place, offset (-1: none), when it was asked."""
        self.on_answer: Callable[[Asked, Any], None] = lambda asked, answer: None
        """Is told every answer."""

    def __repr__(self) -> str:
        return f"<history: {len(self.sent)} records sent, {len(self.open)} requests open>"

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # --- records ---

    def acknowledge(self, value: bytes, offset: int) -> None:
        place = self.sent[value].place
        self.acknowledged[place][offset] = value
        self.news.append((place, offset, value))

    # --- requests ---

    def asked(self, who: str, api: Api, request: Struct, timeout_ms: int) -> Asked:
        found = Asked(who, api, request, self.tick(), self._now(), timeout_ms)
        self.open[found] = None
        if isinstance(request, OffsetCommitRequest):
            for place, offset in _committing(request):
                self.commits[place].append(Attempt(offset, found.began))
        return found

    def told(self, asked: Asked, future: asyncio.Future[Any]) -> None:
        """The answer, or that there is none."""
        self.open.pop(asked, None)
        name = asked.api.name
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
            self._committed(asked, answer)
        elif isinstance(answer, OffsetFetchResponse):
            self._fetched(asked, answer)
        self.on_answer(asked, answer)

    def gone(self, who: str) -> None:
        """A client died: what it asked may or may not be done."""
        for asked in [asked for asked in self.open if asked.who == who]:
            del self.open[asked]
            self.answers[f"{asked.api.name} died"] += 1

    # --- commits ---

    def _committed(self, asked: Asked, answer: OffsetCommitResponse) -> None:
        now = self.tick()
        request: Any = asked.request
        for topic in answer.topics:
            for row in topic.partitions:
                place = (request.group_id, topic.name, row.partition_index)
                attempts = self.commits[place]
                attempt = next((a for a in attempts if a.began == asked.began), None)
                if attempt is None:
                    continue
                if row.error_code == 0:
                    attempt.acknowledged, attempt.ended = True, now
                    self.commits_acknowledged += 1
                elif row.error_code in CERTAINLY_NOT:
                    attempts.remove(attempt)
                if len(attempts) > MANY:
                    self.commits[place] = self._that_matter(attempts)

    def _that_matter(self, attempts: list[Attempt]) -> list[Attempt]:
        """Those that an answer which is still to come may show."""
        oldest = next(iter(self.open)).began if self.open else self.clock
        floor = max((a.began for a in attempts if a.ended is not None and a.ended < oldest), default=0)
        return [a for a in attempts if a.ended is None or a.ended >= floor]

    def _fetched(self, asked: Asked, answer: OffsetFetchResponse) -> None:
        for group in answer.groups:
            for topic in group.topics:
                for row in topic.partitions:
                    if row.error_code == 0:
                        place = (group.group_id, topic.name, row.partition_index)
                        self.on_offsets(place, row.committed_offset, asked.began)

    def may_be_committed(self, place: Place, offset: int, began: int) -> bool:
        """Whether a reading that began then may see this offset (-1: none).

        It may, if nothing that was acknowledged before it began was begun after this one was acknowledged."""
        attempts = self.commits.get(place, [])
        floor = max((a.began for a in attempts if a.ended is not None and a.ended < began), default=0)
        if offset < 0:
            return floor == 0
        return any(a.offset == offset and (a.ended is None or a.ended >= floor) for a in attempts)

    def committed(self, place: Place) -> str:
        """What may be, in words."""
        rows = self.commits.get(place, [])[-6:]
        return ", ".join(f"{a.offset} ({a.began}..{'?' if a.ended is None else a.ended})" for a in rows)


def connecting(
    history: History, who: str, settings: ClientSettings
) -> Callable[[str, int], Awaitable[Connection]]:
    """What a `Cluster` connects with, so that the history hears of each request."""

    class Watched(Connection):
        def _start(
            self, request: Struct, api: Api, version: int, timeout_ms: int | None
        ) -> asyncio.Future[Any]:
            future = super()._start(request, api, version, timeout_ms)
            wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
            asked = history.asked(who, api, request, wait_ms)
            future.add_done_callback(lambda done: history.told(asked, done))
            return future

    async def connect(host: str, port: int) -> Connection:
        return await Watched.open(
            host, port, client_id=settings.client_id, request_timeout_ms=settings.request_timeout_ms,
            connect_timeout_ms=settings.connect_timeout_ms,
        )  # fmt: skip

    return connect


def _committing(request: OffsetCommitRequest) -> list[tuple[Place, int]]:
    return [
        ((request.group_id, topic.name, row.partition_index), row.committed_offset)
        for topic in request.topics
        for row in topic.partitions
    ]


def first_error(answer: Any, depth: int = 4) -> int:
    """The first error code in an answer that is not 0."""
    code = getattr(answer, "error_code", 0)
    if code or depth == 0:
        return int(code)
    for field in getattr(answer, "__fields__", ()):
        value = getattr(answer, field.name)
        if isinstance(value, tuple):
            for each in value:
                if not isinstance(each, Struct):
                    break
                code = first_error(each, depth - 1)
                if code:
                    return code
    return 0


def _code_name(code: int) -> str:
    return Errors(code).name
