"""Fetch: return record batches as they are in the log, waiting for more if there are too few.

Partitions are read in the order in which the client names them (`fetch_sessions` reorders those of a
session), each up to its own limit of bytes, and all together up to the request's limit. The first batch is
returned whole, whatever its size, so that a consumer always makes progress.

A fetch completes at once if it has `min_bytes`, if a partition has an error or has diverged, or if there is
no partition to read. Otherwise it waits. Each partition that grows is checked alone; once there are enough
bytes, or `max_wait_ms` have passed, all partitions are read again. A missing partition does not complete a
fetch: it is reported with the others, as by Kafka.

There are no followers, so fetches of replicas are rejected.

Each fetch needs READ on each of its topics, including those of its session. Permissions are checked when it
arrives; and, if ACLs have changed while it waited, again before it reads, so that no records are sent after
the permission to read them was revoked. Kafka does not repeat the check.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.net.fetch_sessions import (
    MAX_INT,
    FetchContext,
    FinishedFetch,
    ReadResults,
    RequestedPartition,
    SessionError,
)
from konvene.broker.storage.partitions import Partition, Refused
from konvene.codec.batches import batches
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.log.errors import DamagedLog, LogError
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
from konvene.security.resources import Operation

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
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

RESPONSE_BYTES, PARTITION_BYTES = 20, 60
"""Size of a response without partitions, and of a partition without its records, for quotas."""

NO_EPOCH = -1


def handle(
    loop: asyncio.AbstractEventLoop,
    authorization: Authorization,
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
    except SessionError as rejected:
        return FetchResponse(error_code=rejected.error)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _unknown_isolation_level(request, with_ids=with_ids)
    max_bytes, usage = settings.config["fetch.max.bytes"], context.usage
    if usage is not None:
        max_bytes = min(max_bytes, usage.max_fetch_bytes())
    reader = _Reader(authorization, catalogue, partitions, request, context, fetch, max_bytes)
    if usage is not None and reader.replica_id >= 0:
        usage = None  # Fetches of replicas are exempt.
        context.usage.is_exempt = True
    result = reader.read()

    def respond(result: _ReadResult) -> FetchResponse:
        if usage is not None:
            throttle_ms = usage.throttle_fetch(_response_bytes(fetch, result))
            if throttle_ms:
                throttled = _response(fetch_sessions.throttled(fetch), context.api_version)
                return throttled.replace(throttle_time_ms=throttle_ms)
        finished = fetch_sessions.finish(
            fetch, result.partitions, now_ms=_now_ms(loop), fresh_id=environment.random_int(1, MAX_INT)
        )
        return _response(finished, context.api_version)

    if result.is_final or not result.readable or result.size >= reader.min_bytes or request.max_wait_ms <= 0:
        return respond(result)
    return _DelayedFetch(loop, reader, result, respond).deferred


def _response_bytes(fetch: FetchContext, result: _ReadResult) -> int:
    """Return about how many bytes the response has: its records, and the fields of its partitions."""
    count = sum(1 for _, data in result.partitions if fetch.session is None or data.records)
    return result.size + RESPONSE_BYTES + count * PARTITION_BYTES


def _unknown_isolation_level(request: FetchRequest, *, with_ids: bool) -> FetchResponse:
    """Return Kafka's response to an unknown isolation level: an error for each requested partition.

    If the client fetches by topic id (`with_ids`), the response has no partitions, as in Kafka."""
    error = Errors.UNKNOWN_SERVER_ERROR
    responses = tuple(
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=tuple(
                PartitionData(
                    partition_index=partition.partition, error_code=error, high_watermark=-1, records=b""
                )
                for partition in topic.partitions
            ),
        )
        for topic in (() if with_ids else request.topics)
    )
    return FetchResponse(error_code=error, session_id=request.session_id, responses=responses)


class _ReadResult(NamedTuple):
    """The result of reading all partitions of a fetch."""

    partitions: ReadResults
    size: int
    """Number of bytes in the records."""
    readable: list[tuple[Partition, RequestedPartition]]
    """Partitions with an open log, which the fetch watches if it waits."""
    is_final: bool
    """True if a partition has an error or has diverged, which completes the fetch."""


class _Reader:
    """Reads the partitions of one fetch, once or again after waiting, within its limits of bytes."""

    __slots__ = (
        "authorization",
        "catalogue",
        "checked",
        "committed",
        "context",
        "denied",
        "fetch",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "replica_id",
    )  # fmt: skip

    def __init__(
        self,
        authorization: Authorization,
        catalogue: ClusterCatalogue,
        partitions: Partitions,
        request: FetchRequest,
        context: RequestContext,
        fetch: FetchContext,
        max_bytes: int,
    ) -> None:
        self.authorization = authorization
        self.checked: tuple[int, frozenset[str | None]] = -1, frozenset()
        """Epoch of the ACLs and the topics for which permissions were checked last."""
        self.denied: frozenset[str | None] = frozenset()
        """Topics that the client may not read; None is in it if it may not fetch topics of unknown ids."""
        self.catalogue, self.partitions = catalogue, partitions
        self.context, self.fetch = context, fetch
        self.max_wait_ms = request.max_wait_ms
        self.max_bytes = min(request.max_bytes, max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.committed = request.isolation_level == READ_COMMITTED
        has_replica_state = context.api_version >= FIRST_VERSION_WITH_REPLICA_STATE
        self.replica_id = request.replica_state.replica_id if has_replica_state else request.replica_id

    def read(self) -> _ReadResult:
        """Read all partitions. Those that do not exist come last in the result."""
        if self.authorization.is_enabled:
            self._check_permissions()
        found: ReadResults = []
        missing: ReadResults = []
        readable: list[tuple[Partition, RequestedPartition]] = []
        remaining, total, is_final = self.max_bytes, 0, False
        for requested in self.fetch.partitions.values():
            try:
                partition = self._find(requested)
            except Refused as rejected:
                missing.append((requested, _error(requested, rejected.error, ())))
                continue
            try:
                data = self._read_partition(partition, requested, remaining, first=total == 0)
            except (Refused, LogError) as rejected:
                data = self._error_data(requested, rejected)
            size = len(data.records or b"")
            total += size
            remaining = max(remaining - size, 0)
            if data.error_code or data.diverging_epoch.epoch >= 0:
                is_final = True
            if partition is not None:
                readable.append((partition, requested))
            found.append((requested, data))
        return _ReadResult(found + missing, total, readable, is_final)

    def _check_permissions(self) -> None:
        """Add the topics that the client may not read to `denied`, unless the same ACLs were checked."""
        names = frozenset(self._topic_name(requested) for requested in self.fetch.partitions.values())
        if self.checked == (self.authorization.epoch, names):
            return
        self.checked = self.authorization.epoch, names
        if self.replica_id < 0:
            known = {name for name in names if name is not None}
            permitted = self.authorization.permitted_topics(self.context, Operation.READ, known)
            self.denied |= known - permitted
        elif not self.authorization.permits_cluster(self.context, Operation.CLUSTER_ACTION):
            self.denied |= names

    def _topic_name(self, requested: RequestedPartition) -> str | None:
        """Return the topic's name, after storing it if the id has only now become known."""
        if requested.topic is None and requested.topic_id:
            topic = self.catalogue.topics.by_id.get(requested.topic_id)
            requested.topic = None if topic is None else topic.name
        return requested.topic

    def _find(self, requested: RequestedPartition) -> Partition | None:
        """Return the partition, or None if its log is offline.

        Raises `Refused` if the client may not read it, or if it does not exist."""
        topics, name = self.catalogue.topics, requested.topic or self._topic_name(requested)
        if name in self.denied:
            raise Refused(Errors.TOPIC_AUTHORIZATION_FAILED)
        if name is None:
            raise Refused(Errors.UNKNOWN_TOPIC_ID)
        index = requested.request.partition
        if not topics.has(name, index):
            raise Refused(Errors.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions.get(name, index)

    def _read_partition(
        self, partition: Partition | None, requested: RequestedPartition, remaining: int, *, first: bool
    ) -> PartitionData:
        request = requested.request
        if partition is None:
            raise Refused(Errors.KAFKA_STORAGE_ERROR)
        if requested.topic_id not in (None, self.catalogue.topics.by_name[partition.topic].id):
            raise Refused(Errors.INCONSISTENT_TOPIC_ID)
        has_epoch = request.current_leader_epoch > NO_EPOCH
        if has_epoch:
            partition.check_leader_epoch(request.current_leader_epoch)
        if self.replica_id >= 0:
            raise Refused(Errors.UNKNOWN_LEADER_EPOCH if has_epoch else Errors.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        end = partition.high_watermark
        last_stable_offset = log.last_stable_offset(end)
        data = PartitionData(
            partition_index=request.partition,
            high_watermark=end,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=() if self.committed else None,
            records=b"",
        )
        if request.last_fetched_epoch > NO_EPOCH:
            diverging = _diverging(partition, request.last_fetched_epoch, request.fetch_offset)
            if diverging is not None:
                return data.replace(diverging_epoch=diverging, aborted_transactions=None)
        limit = min(request.partition_max_bytes, remaining)
        upto = last_stable_offset if self.committed else end
        if limit < 0 and log.start_offset <= request.fetch_offset < upto:
            raise Refused(Errors.UNKNOWN_SERVER_ERROR)
        try:
            records = log.read(request.fetch_offset, limit, upto=upto, min_one=first)
        except DamagedLog as damage:
            raise partition.report_damage(damage) from None
        if not records:
            return data
        aborted = _aborted(partition, request.fetch_offset, records) if self.committed else None
        return data.replace(records=records, aborted_transactions=aborted)

    def _error_data(self, requested: RequestedPartition, rejected: Refused | LogError) -> PartitionData:
        error = rejected.error if isinstance(rejected, Refused) else Errors(rejected.code)
        version = self.context.api_version
        if error is Errors.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
            error = Errors.NOT_LEADER_OR_FOLLOWER
        data = _error(requested, error)
        leader_changed = error in (Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH)
        if leader_changed and version >= FIRST_VERSION_WITH_LEADER:
            epoch = self.catalogue.state.leader_epoch(requested.topic or "")
            leader = LeaderIdAndEpoch(leader_id=self.catalogue.node_id, leader_epoch=epoch)
            return data.replace(current_leader=leader)
        return data


def _response(finished: FinishedFetch, version: int) -> FetchResponse:
    """Return the response with the partitions grouped by topic, in the order in which they were read."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        topics = tuple(
            FetchableTopicResponse(topic=name, partitions=tuple(data for _, data in group))
            for name, group in groupby(finished.results, key=lambda pair: pair[0].topic or "")
        )
    else:
        topics = tuple(
            FetchableTopicResponse(topic_id=topic_id, partitions=tuple(data for _, data in group))
            for topic_id, group in groupby(finished.results, key=lambda pair: pair[0].topic_id)
            if topic_id is not None
        )
    return FetchResponse(error_code=finished.error, session_id=finished.session_id, responses=topics)


class _DelayedFetch:
    """A fetch that waits until its partitions have `min_bytes`, or `max_wait_ms` have passed."""

    __slots__ = ("deferred", "reader", "respond", "size", "timer", "watches")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: _Reader,
        result: _ReadResult,
        respond: Callable[[_ReadResult], FetchResponse],
    ) -> None:
        self.reader = reader
        self.respond = respond
        self.size = result.size
        self.deferred: Deferred[FetchResponse] = Deferred()
        self.timer = loop.call_later(min(reader.max_wait_ms, MAX_INT) / 1000, self.complete)
        self.watches = [
            _PartitionWatch(self, partition, requested) for partition, requested in result.readable
        ]
        for watch in self.watches:
            watch.partition.waiting[watch] = None

    def complete(self) -> None:
        """Stop waiting, read all partitions again, and respond."""
        self.timer.cancel()
        for watch in self.watches:
            watch.partition.waiting.pop(watch, None)
        self.deferred.resolve(self.respond(self.reader.read()))


class _PartitionWatch:
    """An observer of one partition: counts appended bytes, and completes the fetch when there are enough."""

    __slots__ = ("checked_offset", "delayed", "partition", "remaining_bytes")

    def __init__(self, delayed: _DelayedFetch, partition: Partition, requested: RequestedPartition) -> None:
        self.delayed = delayed
        self.partition = partition
        self.checked_offset = max(self._upto(), requested.request.fetch_offset)
        """End of the records that are counted already."""
        self.remaining_bytes = requested.request.partition_max_bytes

    def _upto(self) -> int:
        partition = self.partition
        end = partition.high_watermark
        return partition.log.last_stable_offset(end) if self.delayed.reader.committed else end

    def try_complete(self) -> None:
        delayed = self.delayed
        if not delayed.deferred.done and self._has_enough():
            delayed.complete()

    def _has_enough(self) -> bool:
        delayed, partition, log = self.delayed, self.partition, self.partition.log
        if delayed.reader.partitions.get(partition.topic, partition.index) is not partition:
            return True  # The partition was deleted or its log failed.
        upto = self._upto()
        if upto <= self.checked_offset:
            return False
        if delayed.reader.min_bytes <= 1 or log.active_segment.base_offset > self.checked_offset:
            return True  # As in Kafka, the end of a segment completes a fetch, because a read ends with it.
        try:
            size = len(log.read(self.checked_offset, max(self.remaining_bytes, 0), upto=upto))
        except LogError:
            return True
        self.checked_offset = upto
        size = min(size, self.remaining_bytes)
        self.remaining_bytes -= size
        delayed.size += size
        return delayed.size >= delayed.reader.min_bytes


def _diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Return the epoch and end offset at which the client's log diverges (KIP-595); None if it agrees."""
    log = partition.log
    end = partition.end_of_epoch(epoch)
    if NO_EPOCH in end or offset < log.start_offset:
        raise Refused(Errors.OFFSET_OUT_OF_RANGE)
    if end[0] < epoch or end[1] < offset:
        return EpochEndOffset(epoch=end[0], end_offset=end[1])
    return None


def _aborted(partition: Partition, offset: int, records: bytes) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions in `records`, which start at `offset`, for the client to skip.

    Those behind a damaged batch are left out, since the client cannot read beyond it either."""
    log = partition.log
    if not log.aborted:
        return ()
    upto = offset
    try:
        for header, _ in batches(records):
            upto = header.next_offset
    except CodecError as damage:
        partition.report_damage(damage)
    return tuple(
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_transactions(offset, upto)
    )


def _error(
    requested: RequestedPartition, error: Errors, aborted: tuple[AbortedTransaction, ...] | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=requested.request.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=b"",
    )


def _now_ms(loop: asyncio.AbstractEventLoop) -> int:
    """Return the monotonic time in ms."""
    return int(loop.time() * 1000)
