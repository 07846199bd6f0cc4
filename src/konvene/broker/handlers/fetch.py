"""Fetch: record batches as they stand in the log; a consumer that finds too few waits for more.

Partitions are read in the order in which the client named them (a session's order changes, see
`fetch_sessions`), each up to its own limit and all of them up to the request's; the first batch found is
given whole however large it is, so that nobody is stuck.

A fetch is answered at once when it has `min_bytes`, when a partition answers with an error or has diverged,
and when there is no partition that could be read. Otherwise it waits: each partition that grows is looked at
alone, and only when there is enough, or time is up, are all of them read once more. A partition that is not
there is no reason to hurry: the client hears of it with the rest, as by Kafka.

There are no followers here, so whoever says that it is one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.net.fetch_sessions import MAX_INT, Fetch, FinishedFetch, Found, Interest, SessionError
from konvene.broker.storage.partitions import Partition, Refused
from konvene.codec.batches import batches
from konvene.errors import Errors
from konvene.log.errors import LogError
from konvene.log.partition import PartitionLog
from konvene.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from konvene.runtime.deferred import Answer, Deferred

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.fetch_sessions import FetchSessions
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_LEADER = 16
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_EPOCH = -1


def handle(
    loop: asyncio.AbstractEventLoop,
    environment: Environment,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    fetch_sessions: FetchSessions,
    request: FetchRequest,
    context: RequestContext,
) -> Answer[FetchResponse]:
    with_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    try:
        fetch = fetch_sessions.begin(request, with_ids=with_ids, now_ms=_now_ms(loop))
    except SessionError as refused:
        return FetchResponse(error_code=refused.error)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _unknown_isolation(request, with_ids=with_ids)
    reader = _Reader(catalogue, partitions, request, context, fetch, settings.config["fetch.max.bytes"])
    seen = reader.read()

    def respond(seen: _Seen) -> FetchResponse:
        finished = fetch_sessions.finish(
            fetch, seen.found, now_ms=_now_ms(loop), fresh_id=environment.random_int(1, MAX_INT)
        )
        return _response(finished, context.api_version)

    if seen.at_once or not seen.readable or seen.size >= reader.min_bytes or request.max_wait_ms <= 0:
        return respond(seen)
    return _Wait(loop, reader, seen, respond).deferred


def _unknown_isolation(request: FetchRequest, *, with_ids: bool) -> FetchResponse:
    """Kafka's answer to a number that stands for no isolation level."""
    error = Errors.UNKNOWN_SERVER_ERROR
    responses = tuple(
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=tuple(
                PartitionData(
                    partition_index=wanted.partition, error_code=error, high_watermark=-1, records=b""
                )
                for wanted in topic.partitions
            ),
        )
        for topic in (() if with_ids else request.topics)
    )
    return FetchResponse(error_code=error, session_id=request.session_id, responses=responses)


class _Seen(NamedTuple):
    """One look at all partitions of a fetch."""

    found: Found
    size: int
    """Bytes of records."""
    readable: list[tuple[Partition, Interest]]
    at_once: bool
    """Whether somebody has an error or has diverged, which the client should know without waiting."""


class _Reader:
    """What a fetch asks for, said once."""

    __slots__ = (
        "catalogue",
        "committed",
        "context",
        "fetch",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "replica_id",
    )  # fmt: skip

    def __init__(
        self,
        catalogue: ClusterCatalogue,
        partitions: Partitions,
        request: FetchRequest,
        context: RequestContext,
        fetch: Fetch,
        max_bytes: int,
    ) -> None:
        self.catalogue, self.partitions = catalogue, partitions
        self.context, self.fetch = context, fetch
        self.max_wait_ms = request.max_wait_ms
        self.max_bytes = min(request.max_bytes, max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.committed = request.isolation_level == READ_COMMITTED
        stated = context.api_version >= FIRST_VERSION_WITH_REPLICA_STATE
        self.replica_id = request.replica_state.replica_id if stated else request.replica_id

    def read(self) -> _Seen:
        """Read all partitions. Those that are not there come last."""
        found: Found = []
        missing: Found = []
        readable: list[tuple[Partition, Interest]] = []
        left, total, at_once = self.max_bytes, 0, False
        for interest in self.fetch.interests.values():
            try:
                partition = self._find(interest)
            except Refused as refused:
                missing.append((interest, _error(interest, refused.error, ())))
                continue
            try:
                data = self._partition(partition, interest, left, first=total == 0)
            except (Refused, LogError) as refused:
                data = self._refused(interest, refused)
            size = len(data.records or b"")
            total += size
            left = max(left - size, 0)
            if data.error_code or data.diverging_epoch.epoch >= 0:
                at_once = True
            if partition is not None:
                readable.append((partition, interest))
            found.append((interest, data))
        return _Seen(found + missing, total, readable, at_once)

    def _find(self, interest: Interest) -> Partition | None:
        """The partition; None where its log is offline. Raises `Refused` where there is none."""
        topics = self.catalogue.topics
        if interest.topic is None:
            topic = topics.by_id.get(interest.topic_id) if interest.topic_id else None
            if topic is None:
                raise Refused(Errors.UNKNOWN_TOPIC_ID)
            interest.topic = topic.name
        index = interest.wanted.partition
        if not topics.has(interest.topic, index):
            raise Refused(Errors.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions.get(interest.topic, index)

    def _partition(
        self, partition: Partition | None, interest: Interest, left: int, *, first: bool
    ) -> PartitionData:
        wanted = interest.wanted
        if partition is None:
            raise Refused(Errors.KAFKA_STORAGE_ERROR)
        if interest.topic_id not in (None, self.catalogue.topics.by_name[partition.topic].id):
            raise Refused(Errors.INCONSISTENT_TOPIC_ID)
        known_epoch = wanted.current_leader_epoch > NO_EPOCH
        if known_epoch:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if self.replica_id >= 0:
            raise Refused(Errors.UNKNOWN_LEADER_EPOCH if known_epoch else Errors.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        end = partition.high_watermark
        stable = log.last_stable_offset(end)
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=() if self.committed else None,
            records=b"",
        )
        if wanted.last_fetched_epoch > NO_EPOCH:
            diverging = _diverging(partition, wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return data.replace(diverging_epoch=diverging, aborted_transactions=None)
        limit = min(wanted.partition_max_bytes, left)
        upto = stable if self.committed else end
        if limit < 0 and log.start_offset <= wanted.fetch_offset < upto:
            raise Refused(Errors.UNKNOWN_SERVER_ERROR)
        records = log.read(wanted.fetch_offset, limit, upto=upto, min_one=first)
        if not records:
            return data
        aborted = _aborted(log, wanted.fetch_offset, records) if self.committed else None
        return data.replace(records=records, aborted_transactions=aborted)

    def _refused(self, interest: Interest, refused: Refused | LogError) -> PartitionData:
        error = refused.error if isinstance(refused, Refused) else Errors(refused.code)
        version = self.context.api_version
        if error is Errors.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
            error = Errors.NOT_LEADER_OR_FOLLOWER
        data = _error(interest, error)
        moved = error in (Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH)
        if moved and version >= FIRST_VERSION_WITH_LEADER:
            epoch = self.catalogue.state.leader_epoch(interest.topic or "")
            leader = LeaderIdAndEpoch(leader_id=self.catalogue.node_id, leader_epoch=epoch)
            return data.replace(current_leader=leader)
        return data


def _response(finished: FinishedFetch, version: int) -> FetchResponse:
    """Group the partitions of a fetch by topic, in the order in which they were read."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        topics = tuple(
            FetchableTopicResponse(topic=name, partitions=tuple(data for _, data in group))
            for name, group in groupby(finished.found, key=lambda pair: pair[0].topic or "")
        )
    else:
        topics = tuple(
            FetchableTopicResponse(topic_id=topic_id, partitions=tuple(data for _, data in group))
            for topic_id, group in groupby(finished.found, key=lambda pair: pair[0].topic_id)
            if topic_id is not None
        )
    return FetchResponse(error_code=finished.error, session_id=finished.session_id, responses=topics)


class _Wait:
    """A fetch that waits until its partitions have enough, or time is up."""

    __slots__ = ("alarm", "deferred", "reader", "respond", "size", "watches")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: _Reader,
        seen: _Seen,
        respond: Callable[[_Seen], FetchResponse],
    ) -> None:
        self.reader = reader
        self.respond = respond
        self.size = seen.size
        self.deferred: Deferred[FetchResponse] = Deferred()
        self.alarm = loop.call_later(min(reader.max_wait_ms, MAX_INT) / 1000, self.finish)
        self.watches = [_Watch(self, partition, interest) for partition, interest in seen.readable]
        for watch in self.watches:
            watch.partition.waiting[watch] = None

    def finish(self) -> None:
        """Whatever is there now is the answer."""
        self.alarm.cancel()
        for watch in self.watches:
            watch.partition.waiting.pop(watch, None)
        self.deferred.resolve(self.respond(self.reader.read()))


class _Watch:
    """One partition of a fetch that waits: told when it grows, it looks at what is new and no further."""

    __slots__ = ("left", "partition", "seen_to", "wait")

    def __init__(self, wait: _Wait, partition: Partition, interest: Interest) -> None:
        self.wait = wait
        self.partition = partition
        self.seen_to = max(self._upto(), interest.wanted.fetch_offset)
        self.left = interest.wanted.partition_max_bytes

    def _upto(self) -> int:
        partition = self.partition
        end = partition.high_watermark
        return partition.log.last_stable_offset(end) if self.wait.reader.committed else end

    def try_complete(self) -> None:
        wait = self.wait
        if not wait.deferred.done and self._is_enough():
            wait.finish()

    def _is_enough(self) -> bool:
        wait, partition, log = self.wait, self.partition, self.partition.log
        if wait.reader.partitions.get(partition.topic, partition.index) is not partition:
            return True  # It is gone, and the client should know.
        upto = self._upto()
        if upto <= self.seen_to:
            return False
        if wait.reader.min_bytes <= 1 or log.active_segment.base_offset > self.seen_to:
            return True  # A finished segment is given at once, as by Kafka: a read ends with it.
        try:
            size = len(log.read(self.seen_to, max(self.left, 0), upto=upto))
        except LogError:
            return True
        self.seen_to = upto
        size = min(size, self.left)
        self.left -= size
        wait.size += size
        return wait.size >= wait.reader.min_bytes


def _diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Where the client's records part from the log's, if its last epoch ended before its offset."""
    log = partition.log
    end = partition.end_of_epoch(epoch)
    if NO_EPOCH in end or offset < log.start_offset:
        raise Refused(Errors.OFFSET_OUT_OF_RANGE)
    if end[0] < epoch or end[1] < offset:
        return EpochEndOffset(epoch=end[0], end_offset=end[1])
    return None


def _aborted(log: PartitionLog, offset: int, records: bytes) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that the client has to skip in these records."""
    if not log.aborted:
        return ()
    upto = offset
    for header, _ in batches(records):
        upto = header.next_offset
    return tuple(
        AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
        for gone in log.aborted_transactions(offset, upto)
    )


def _error(
    interest: Interest, error: Errors, aborted: tuple[AbortedTransaction, ...] | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=interest.wanted.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=b"",
    )


def _now_ms(loop: asyncio.AbstractEventLoop) -> int:
    """Return the monotonic time in ms."""
    return int(loop.time() * 1000)
