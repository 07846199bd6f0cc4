"""Fetch sessions (KIP-227): a consumer names its partitions once; its later requests have only differences.

A session holds the partitions that a client fetches, their fetch offsets, and the watermarks that the client
last received. The client's first fetch is full and may open a session. Each later one is incremental, has the
next epoch, and its response only has partitions with records, an error, or changed watermarks.

This module reads neither logs nor clocks. The caller passes a request to `begin`, reads the partitions that
it returns, and passes the results to `finish`. If the client has sent a later request in between, the earlier
one fails with INVALID_FETCH_SESSION_EPOCH.

The number of sessions is limited, and so is the number of partitions in all of them. If a limit is reached, a
full fetch opens no session: its response has session id 0, and the client's next fetch is full again. To stay
within the limit of sessions, the broker first tries to evict one of these:

  the least recently used session, if it was unused for more than `EVICTION_MS`; otherwise
  the smallest session that has existed for longer than that, if it is smaller than the new one.

A partition whose records were sent is moved behind the others, so that responses that reach their size limit
do not always have the same partitions.
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
"""Time in ms without use, or of existence, after which a session may be evicted; Kafka's
`MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`."""

MAX_PARTITIONS = 1_000_000
"""Maximum number of partitions in all sessions. Kafka has no such limit: see `_Session`."""

Key = tuple["Uuid | str", int]
"""A topic id, or a name where the client fetches by name, and a partition index."""


class SessionError(Exception):
    """Rejects a fetch whose session is unknown, has another epoch, or names topics in another form."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class RequestedPartition:
    """A partition that a client fetches, and the watermarks that the client last received."""

    __slots__ = ("high_watermark", "log_start_offset", "request", "topic", "topic_id")

    def __init__(self, topic: str | None, topic_id: Uuid | None, request: FetchPartition) -> None:
        self.topic = topic
        """None until the topic id is resolved. The resolved name stays, even if the topic is deleted."""
        self.topic_id = topic_id
        """None if the client fetches by topic name."""
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def __repr__(self) -> str:
        return f"<{self.topic or self.topic_id}-{self.request.partition} from {self.request.fetch_offset}>"

    @property
    def key(self) -> Key:
        return (self.topic or "" if self.topic_id is None else self.topic_id), self.request.partition

    def update(self, data: PartitionData) -> bool:
        """Record the watermarks of a read result; return True if an incremental response needs it."""
        failed = data.error_code != Errors.NONE
        changed = (
            bool(data.records)
            or failed
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        # After an error the next response includes the partition again.
        self.high_watermark = -1 if failed else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return changed


RequestedPartitions = dict[Key, RequestedPartition]
ReadResults = list[tuple[RequestedPartition, "PartitionData"]]


class FetchContext(NamedTuple):
    """The partitions to read for a fetch, and its session; `begin` returns it, `finish` takes it."""

    partitions: RequestedPartitions
    session: _Session | None = None
    epoch: int = FINAL_EPOCH
    """Epoch that the next request of the session will have."""
    opens_session: bool = False
    """True if the request asks for a new session."""
    with_ids: bool = False
    """True if the client fetches by topic id, False if by name."""


class FinishedFetch(NamedTuple):
    """Session id and partitions of a response: all of a full fetch, else the changed ones."""

    error: Errors
    session_id: int
    results: ReadResults


class _Session:
    """The partitions that one client fetches, and the epoch of its next request.

    The partitions need not exist, because they may be created later. A client could therefore name any number
    of them, which `MAX_PARTITIONS` limits.
    """

    __slots__ = ("created_ms", "epoch", "id", "partitions", "used_ms", "with_ids")

    def __init__(self, session_id: int, partitions: RequestedPartitions, with_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.partitions = partitions
        self.with_ids = with_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    def __repr__(self) -> str:
        return f"<fetch session {self.id}: epoch {self.epoch}, {len(self.partitions)} partitions>"

    def update(self, requested: RequestedPartitions, forgotten: Iterator[Key]) -> None:
        for key, partition in requested.items():
            existing = self.partitions.get(key)
            if existing is None:
                self.partitions[key] = partition
            else:
                existing.request = partition.request
        for key in forgotten:
            self.partitions.pop(key, None)

    def changed(self, results: ReadResults) -> ReadResults:
        """Return the results for an incremental response; move partitions with records behind the others."""
        changed = [(partition, data) for partition, data in results if partition.update(data)]
        for partition, data in changed:
            if data.records:
                self.partitions[partition.key] = self.partitions.pop(partition.key)
        return changed


class FetchSessions:
    """All fetch sessions of a broker; opens, updates, closes and evicts them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[int, _Session] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<{len(self)} fetch sessions, {self._partitions} partitions>"

    def begin(self, request: FetchRequest, *, with_ids: bool, now_ms: int) -> FetchContext:
        """Update or close the request's session; return the partitions to read. Raises `SessionError`.

        `with_ids` is True if the request names topics by id, False if by name."""
        requested = _requested(request, with_ids)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            opens = request.session_epoch == INITIAL_EPOCH
            return FetchContext(requested, opens_session=opens, with_ids=with_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(Errors.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionError(Errors.INVALID_FETCH_SESSION_EPOCH)
        if session.with_ids != with_ids:
            raise SessionError(Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        count_before = len(session.partitions)
        session.update(requested, _forgotten(request, with_ids))
        self._partitions += len(session.partitions) - count_before
        if not session.partitions:
            self._close(session.id)
            return FetchContext(requested)
        if self._partitions > MAX_PARTITIONS:
            self._close(session.id)
            raise SessionError(Errors.FETCH_SESSION_ID_NOT_FOUND)
        session.used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(session.partitions, session, session.epoch)

    def finish(
        self, fetch: FetchContext, results: ReadResults, *, now_ms: int, fresh_id: int
    ) -> FinishedFetch:
        """Return error, session id and partitions for the response to a fetch; open a session if possible.

        `fresh_id` is a random id from 1 to `MAX_INT` for a new session. If it is in use, the next unused one
        is taken."""
        session = fetch.session
        if session is not None:
            if session.epoch != fetch.epoch:
                return FinishedFetch(Errors.INVALID_FETCH_SESSION_EPOCH, session.id, [])
            return FinishedFetch(Errors.NONE, session.id, session.changed(results))
        if not fetch.opens_session or not self._can_open(len(results), now_ms):
            return FinishedFetch(Errors.NONE, NO_SESSION, results)
        while fresh_id in self._sessions:
            fresh_id = fresh_id % MAX_INT + 1
        for partition, data in results:
            partition.update(data)
        partitions = {partition.key: partition for partition, _ in results}
        self._sessions[fresh_id] = _Session(fresh_id, partitions, fetch.with_ids, now_ms)
        self._partitions += len(partitions)
        return FinishedFetch(Errors.NONE, fresh_id, results)

    def throttled(self, fetch: FetchContext) -> FinishedFetch:
        """Return error and session id for the response to a throttled fetch; the session stays as it is."""
        session = fetch.session
        if session is None:
            return FinishedFetch(Errors.NONE, NO_SESSION, [])
        error = Errors.NONE if session.epoch == fetch.epoch else Errors.INVALID_FETCH_SESSION_EPOCH
        return FinishedFetch(error, session.id, [])

    def _can_open(self, size: int, now_ms: int) -> bool:
        """Return True if a session of `size` partitions may be opened; evict another one if necessary."""
        if len(self._sessions) >= self._limit and not self._evict(size, now_ms):
            return False
        return self._partitions + size <= MAX_PARTITIONS

    def _evict(self, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > EVICTION_MS:
            self._close(oldest.id)
            return True
        evictable = [s for s in self._sessions.values() if s.used_ms - s.created_ms > EVICTION_MS]
        smallest = min(evictable, key=lambda s: len(s.partitions), default=None)
        if smallest is None or size <= len(smallest.partitions):
            return False
        self._close(smallest.id)
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)


def next_epoch(epoch: int) -> int:
    """Return the epoch after this one. The largest is followed by 1."""
    return 1 if epoch == MAX_INT else epoch + 1


def _requested(request: FetchRequest, with_ids: bool) -> RequestedPartitions:
    """Return the partitions that a request names. If one is repeated, its last entry counts."""
    requested: RequestedPartitions = {}
    for topic in request.topics:
        name, topic_id = (None, topic.topic_id) if with_ids else (topic.topic, None)
        for partition_request in topic.partitions:
            partition = RequestedPartition(name, topic_id, partition_request)
            requested[partition.key] = partition
    return requested


def _forgotten(request: FetchRequest, with_ids: bool) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if with_ids else topic.topic), index
