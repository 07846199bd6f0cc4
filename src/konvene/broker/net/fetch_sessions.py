"""Fetch sessions (KIP-227): a consumer names its partitions once; after that only what changed is said.

A session remembers which partitions a client fetches and from where, and what it was last told of each. The
client's first fetch is full and may open a session; each one after that is incremental, carries the next
epoch, and is answered with the partitions that have records, an error, or other watermarks than before.

Decides nothing about logs and reads no clock: a fetch is `begin` with the request, then, when its partitions
have been read, `finish` with what was found. Between the two the session can have moved on (a client that
gave up and asked again): the older fetch is then answered INVALID_FETCH_SESSION_EPOCH.

There are so many sessions at most, and so many partitions in all of them together. Who comes when it is full
is answered in full with session id 0, and asks in full the next time, unless one of these can go:

  the session that was longest unused, if that was for more than `EVICTION_MS`; otherwise
  the smallest of those that have lived for longer than that, if it is smaller than the new one.

A partition whose records were sent goes behind the others, so that a response that is cut at its size limit
does not always serve the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.codec.uuid import Uuid
    from konvene.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_INT = 0x7FFF_FFFF

EVICTION_MS = 120_000
"""Kafka's `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`."""

MOST_PARTITIONS = 1_000_000
"""How many partitions all sessions together may hold. Kafka has no such bound: see `_Session`."""

Key = tuple["Uuid | str", int]


class SessionError(Exception):
    """A fetch that fits no session. Nothing has changed."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Interest:
    """One partition that a client fetches, and what it was last told of it."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "topic_id", "wanted")

    def __init__(self, topic: str | None, topic_id: Uuid | None, wanted: FetchPartition) -> None:
        self.topic = topic
        """None while the topic's id is not known to be anybody's; once known, the name stays."""
        self.topic_id = topic_id
        """None where the client speaks of topics by name."""
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def __repr__(self) -> str:
        return f"<{self.topic or self.topic_id}-{self.wanted.partition} from {self.wanted.fetch_offset}>"

    @property
    def key(self) -> Key:
        return (self.topic or "" if self.topic_id is None else self.topic_id), self.wanted.partition

    def hear(self, data: PartitionData) -> bool:
        """Note what the client is about to be told; whether it is anything new."""
        failed = data.error_code != Errors.NONE
        news = (
            bool(data.records)
            or failed
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        # After an error the partition is news again, whatever it says.
        self.high_watermark = -1 if failed else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return news


Interests = dict[Key, Interest]
Found = list[tuple[Interest, "PartitionData"]]


class Fetch(NamedTuple):
    """A fetch that has begun."""

    interests: Interests
    session: _Session | None = None
    epoch: int = FINAL_EPOCH
    """The session's epoch once this fetch is answered."""
    opens: bool = False
    """Whether a session may be opened with what is found."""
    with_ids: bool = False


class FinishedFetch(NamedTuple):
    """What a fetch is answered: in full, or what is new."""

    error: Errors
    session_id: int
    found: Found


class _Session:
    """The partitions of one client.

    They are the client's word: nobody checks that they are there, since one that is missing now may come.
    That is why their number is bounded.
    """

    __slots__ = ("created_ms", "epoch", "id", "interests", "used_ms", "with_ids")

    def __init__(self, session_id: int, interests: Interests, with_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.interests = interests
        self.with_ids = with_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    def __repr__(self) -> str:
        return f"<fetch session {self.id}: epoch {self.epoch}, {len(self.interests)} partitions>"

    def update(self, asked: Interests, forgotten: Iterator[Key]) -> None:
        for key, interest in asked.items():
            known = self.interests.get(key)
            if known is None:
                self.interests[key] = interest
            else:
                known.wanted = interest.wanted
        for key in forgotten:
            self.interests.pop(key, None)

    def news(self, found: Found) -> Found:
        """What the client has not been told yet; those with records go to the end."""
        fresh = [(interest, data) for interest, data in found if interest.hear(data)]
        for interest, data in fresh:
            if data.records:
                self.interests[interest.key] = self.interests.pop(interest.key)
        return fresh


class FetchSessions:
    """All sessions, the longest unused first."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, _Session] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<{len(self)} fetch sessions, {self._partitions} partitions>"

    def begin(self, request: FetchRequest, *, with_ids: bool, now_ms: int) -> Fetch:
        """What a request asks for. Raises `SessionError`."""
        asked = _asked(request, with_ids)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            return Fetch(asked, opens=request.session_epoch == INITIAL_EPOCH, with_ids=with_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(Errors.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionError(Errors.INVALID_FETCH_SESSION_EPOCH)
        if session.with_ids != with_ids:
            raise SessionError(Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.interests)
        session.update(asked, _forgotten(request, with_ids))
        self._partitions += len(session.interests) - before
        if not session.interests:
            self._close(session.id)
            return Fetch(asked)
        if self._partitions > MOST_PARTITIONS:
            self._close(session.id)
            raise SessionError(Errors.FETCH_SESSION_ID_NOT_FOUND)
        session.used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return Fetch(session.interests, session, session.epoch)

    def finish(self, fetch: Fetch, found: Found, *, now_ms: int, fresh_id: int) -> FinishedFetch:
        """What the client is told. `fresh_id`: a random id from 1 to `MAX_INT`, for a session that opens."""
        session = fetch.session
        if session is not None:
            if session.epoch != fetch.epoch:
                return FinishedFetch(Errors.INVALID_FETCH_SESSION_EPOCH, session.id, [])
            return FinishedFetch(Errors.NONE, session.id, session.news(found))
        if not fetch.opens or not self._has_room(len(found), now_ms):
            return FinishedFetch(Errors.NONE, NO_SESSION, found)
        while fresh_id in self._sessions:
            fresh_id = fresh_id % MAX_INT + 1
        for interest, data in found:
            interest.hear(data)
        interests = {interest.key: interest for interest, _ in found}
        self._sessions[fresh_id] = _Session(fresh_id, interests, fetch.with_ids, now_ms)
        self._partitions += len(interests)
        return FinishedFetch(Errors.NONE, fresh_id, found)

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Whether one more session may be, having let one go if need be."""
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return False
        return self._partitions + size <= MOST_PARTITIONS

    def _evict(self, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > EVICTION_MS:
            self._close(oldest.id)
            return True
        settled = [s for s in self._sessions.values() if s.used_ms - s.created_ms > EVICTION_MS]
        least = min(settled, key=lambda s: len(s.interests), default=None)
        if least is None or size <= len(least.interests):
            return False
        self._close(least.id)
        return True

    def _close(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            self._partitions -= len(gone.interests)


def next_epoch(epoch: int) -> int:
    """Epochs of a session count from 1, and from 1 again when there is no larger number."""
    return 1 if epoch == MAX_INT else epoch + 1


def _asked(request: FetchRequest, with_ids: bool) -> Interests:
    """The partitions of a request; of one that is named twice the last word counts."""
    asked: Interests = {}
    for topic in request.topics:
        name, topic_id = (None, topic.topic_id) if with_ids else (topic.topic, None)
        for wanted in topic.partitions:
            interest = Interest(name, topic_id, wanted)
            asked[interest.key] = interest
    return asked


def _forgotten(request: FetchRequest, with_ids: bool) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if with_ids else topic.topic), index
