"""Fetching of partitions without a group: ListOffsets, one round of Fetch, and the reading of a whole
partition.

No fetch sessions are used: every Fetch names all its partitions, so there is no state between two calls but
the caller's positions. The checksums of batches are verified. Control batches and, with READ_COMMITTED, the
records of aborted transactions are left out, but the next offset is behind them. `fetch_batches` returns the
batches as they are stored in the log.

The error code of a partition is returned, not raised: the caller decides whether to find a new leader, reset
the position or give up (`read_error`). A damaged batch ends what is returned of its partition; at its own
offset the error code is CORRUPT_MESSAGE, as if the broker had found it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from konvene.client.errors import BadResponse, ClientError, CorruptRecord, KafkaError, UnsupportedVersion
from konvene.client.net.cluster import Cluster, Lane, TopicPartition
from konvene.client.net.connection import Connection
from konvene.codec.batches import (
    BatchHeader,
    ControlType,
    Record,
    TimestampType,
    check,
    control_type,
    read_header,
    records,
)
from konvene.codec.errors import CodecError, Truncated
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from konvene.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = [
    "EARLIEST", "LATEST", "LEADER_MOVED", "MAX_TIMESTAMP", "READ_COMMITTED", "READ_UNCOMMITTED", "Fetched",
    "FetchedBatches", "OffsetAt", "fetch", "fetch_batches", "list_offsets", "read_error", "read_partition",
    "timestamp_type", "whole_batches",
]  # fmt: skip

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

LEADER_MOVED = frozenset(
    {
        Errors.NOT_LEADER_OR_FOLLOWER, Errors.LEADER_NOT_AVAILABLE, Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID, Errors.INCONSISTENT_TOPIC_ID, Errors.FENCED_LEADER_EPOCH,
        Errors.UNKNOWN_LEADER_EPOCH, Errors.REPLICA_NOT_AVAILABLE, Errors.KAFKA_STORAGE_ERROR,
        Errors.OFFSET_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Errors after which the metadata is refreshed and the request is retried."""

_LARGEST_ANSWER = 50 * 1024 * 1024


class OffsetAt(NamedTuple):
    """The offset that a partition has for a timestamp, and the timestamp of its record (-1 if unknown).

    Both are -1 if no record is at or after the timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class Fetched(NamedTuple):
    """The records that one Fetch returned for a partition; `next_offset` is the next offset to fetch."""

    partition: TopicPartition
    error_code: int
    records: list[Record]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    damage: str = ""
    """What is wrong with the batch at the position, if the client found it to be damaged."""
    log_append_time: tuple[range, ...] = ()
    """Offsets of records whose timestamps the broker set."""

    def __repr__(self) -> str:
        return f"Fetched({self.partition}, {len(self.records)} records, then {self.next_offset})"


class FetchedBatches(NamedTuple):
    """The batches that one Fetch returned for a partition, not decoded."""

    partition: TopicPartition
    error_code: int
    batches: list[tuple[BatchHeader, memoryview]]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    damage: str = ""
    """What is wrong with the batch at the position, if the client found it to be damaged."""

    def __repr__(self) -> str:
        return f"FetchedBatches({self.partition}, {len(self.batches)} batches, then {self.next_offset})"


Answer = TypeVar("Answer", Fetched, FetchedBatches)


def timestamp_type(offset: int, log_append_time: Sequence[range]) -> TimestampType:
    """Return the source of the timestamp of a record, given `Fetched.log_append_time`."""
    is_appended = any(offset in offsets for offsets in log_append_time)
    return TimestampType.LOG_APPEND_TIME if is_appended else TimestampType.CREATE_TIME


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAt]:  # fmt: skip
    """Return the offset of each partition at a timestamp in ms, or at EARLIEST, LATEST or MAX_TIMESTAMP.

    Raises `KafkaError` for the first partition that fails."""
    patience = cluster.patience(timeout_ms)
    found: dict[TopicPartition, OffsetAt] = {}
    while True:
        try:
            missing = {tp: at for tp, at in wanted.items() if tp not in found}
            for node_id, partitions in (await cluster.by_leader(missing)).items():
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=isolation_level,
                    timeout_ms=cluster.settings.request_timeout_ms,
                    topics=tuple(
                        ListOffsetsTopic(
                            name=topic,
                            partitions=tuple(
                                ListOffsetsPartition(partition_index=tp.partition, timestamp=missing[tp])
                                for tp in rows
                            ),
                        )
                        for topic, rows in _by_topic(partitions).items()
                    ),
                )
                answer: ListOffsetsResponse = await cluster.ask(request, node_id=node_id)
                for t in answer.topics:
                    for p in t.partitions:
                        tp = TopicPartition(t.name, p.partition_index)
                        if p.error_code:
                            raise KafkaError(p.error_code, about=f"the offsets of {tp}")
                        found[tp] = OffsetAt(p.offset, p.timestamp, p.leader_epoch)
            return {tp: found[tp] for tp in wanted}
        except KafkaError as error:
            for topic in {tp.topic for tp in wanted}:
                cluster.forget_topic(topic)
            await patience.after(error)
        except KeyError as error:
            raise BadResponse(f"ListOffsets left out {error.args[0]}") from error


async def fetch(
    cluster: Cluster, positions: Mapping[TopicPartition, int], *, max_wait_ms: int = 500, min_bytes: int = 1,
    max_bytes: int = _LARGEST_ANSWER, partition_max_bytes: int = 1024 * 1024,
    isolation_level: int = READ_UNCOMMITTED, lane: Lane = None,
) -> list[Fetched]:  # fmt: skip
    """Fetch once from every leader of these partitions, concurrently, from these offsets on.

    Pass a `lane` of your own if waiting would delay other users of the cluster's connections.

    The result lacks the partitions of a leader that cannot be reached, and their metadata is refreshed. If no
    leader can be reached, the first error is raised."""
    base = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation_level
    )

    def unpack(tp: TopicPartition, data: PartitionData) -> Fetched:
        return _unpack(tp, positions[tp], data, isolation_level)

    return await _round(cluster, positions, base, partition_max_bytes, lane, unpack)


async def fetch_batches(
    cluster: Cluster, positions: Mapping[TopicPartition, int], *, max_wait_ms: int = 500, min_bytes: int = 1,
    max_bytes: int = _LARGEST_ANSWER, partition_max_bytes: int = 1024 * 1024,
    isolation_level: int = READ_UNCOMMITTED, lane: Lane = None,
) -> list[FetchedBatches]:  # fmt: skip
    """Fetch as `fetch` does, but return the bytes of every batch that ends at or after its position.

    They include control batches and, unless the isolation level is READ_COMMITTED, batches of open or aborted
    transactions."""
    base = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation_level
    )

    def keep(tp: TopicPartition, data: PartitionData) -> FetchedBatches:
        return _keep(tp, positions[tp], data, isolation_level)

    return await _round(cluster, positions, base, partition_max_bytes, lane, keep)


async def _round(
    cluster: Cluster, positions: Mapping[TopicPartition, int], base: FetchRequest, partition_max_bytes: int,
    lane: Lane, unpack: Callable[[TopicPartition, PartitionData], Answer],
) -> list[Answer]:  # fmt: skip
    grouped = await cluster.by_leader(positions)
    rounds = []
    for node_id, partitions in grouped.items():
        # With several leaders a long wait at one would hold up the others' records.
        wait_ms = base.max_wait_ms if len(grouped) == 1 else min(base.max_wait_ms, 100)
        requested = {tp: positions[tp] for tp in partitions}
        request = base.replace(max_wait_ms=wait_ms)
        rounds.append(_fetch_from(cluster, node_id, request, requested, partition_max_bytes, lane, unpack))
    outcomes = await asyncio.gather(*rounds, return_exceptions=True)
    answered: list[Answer] = []
    failed: list[ClientError] = []
    for partitions, outcome in zip(grouped.values(), outcomes, strict=True):
        if isinstance(outcome, ClientError) and outcome.retriable:
            failed.append(outcome)
            for tp in partitions:
                cluster.forget_topic(tp.topic)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answered += outcome
    if failed and len(failed) == len(outcomes):
        raise failed[0]
    return answered


async def read_partition(
    cluster: Cluster, partition: TopicPartition, *, start: int | None = None, end: int | None = None,
    isolation_level: int = READ_UNCOMMITTED, timeout_ms: int | None = None,
) -> AsyncIterator[Record]:  # fmt: skip
    """Yield all records of a partition from `start` (default: the first) to `end` (default: the current end).

    With READ_COMMITTED the default end is the last stable offset."""
    if start is None:
        start = (await list_offsets(cluster, {partition: EARLIEST}))[partition].offset
    if end is None:
        latest = await list_offsets(cluster, {partition: LATEST}, isolation_level=isolation_level)
        end = latest[partition].offset
    position = start
    patience = cluster.patience(timeout_ms)
    while position < end:
        try:
            (got,) = await fetch(cluster, {partition: position}, isolation_level=isolation_level)
            if got.error_code:
                raise read_error(got, position)
        except ClientError as error:
            cluster.forget_topic(partition.topic)
            await patience.after(error)
            continue
        if got.next_offset > position:
            patience = cluster.patience(timeout_ms)  # The time is for one step, not for the whole log.
        elif patience.left_ms == 0:
            raise KafkaError(Errors.REQUEST_TIMED_OUT, about=f"reading {partition} at offset {position}")
        for record in got.records:
            if record.offset < end:
                yield record
        position = got.next_offset


async def _fetch_from(
    cluster: Cluster, node_id: int, base: FetchRequest, positions: Mapping[TopicPartition, int],
    partition_max_bytes: int, lane: Lane, unpack: Callable[[TopicPartition, PartitionData], Answer],
) -> list[Answer]:  # fmt: skip
    connection = await cluster.node(node_id, lane)
    request, version = _fetch_request(cluster, connection, base, positions, partition_max_bytes)
    wait_ms = base.max_wait_ms + connection.request_timeout_ms
    answer: FetchResponse = await connection.send(request, version, timeout_ms=wait_ms)
    if answer.error_code:
        raise KafkaError(answer.error_code, about=f"Fetch from broker {node_id}")
    out = []
    for t in answer.responses:
        name = t.topic if version <= 12 else cluster.metadata.names.get(bytes(t.topic_id), "")
        for p in t.partitions:
            tp = TopicPartition(name, p.partition_index)
            if tp in positions:
                out.append(unpack(tp, p))
    return out


def _fetch_request(
    cluster: Cluster, connection: Connection, base: FetchRequest, positions: Mapping[TopicPartition, int],
    partition_max_bytes: int,
) -> tuple[Struct, int]:  # fmt: skip
    """Return a Fetch request and its version.

    Partitions have topic ids from version 13 on, names before; version 12 is used if an id is unknown."""
    version = connection.version_of(BY_NAME["Fetch"].key)
    ids = {name: t.topic_id for name, t in cluster.metadata.topics.items()}
    grouped = _by_topic(positions)
    if version > 12 and any(ids.get(name, ZERO_UUID) == ZERO_UUID for name in grouped):
        if not connection.speaks(BY_NAME["Fetch"].key, 12):
            raise UnsupportedVersion("the broker fetches by topic id only and gave no id for a topic")
        version = 12
    topics = tuple(
        FetchTopic(
            topic=name,
            topic_id=ids.get(name, ZERO_UUID),
            partitions=tuple(
                FetchPartition(
                    partition=tp.partition,
                    fetch_offset=positions[tp],
                    partition_max_bytes=partition_max_bytes,
                )
                for tp in rows
            ),
        )
        for name, rows in grouped.items()
    )
    return base.replace(topics=topics), version


def _unpack(tp: TopicPartition, position: int, data: PartitionData, isolation_level: int) -> Fetched:
    found: list[Record] = []
    following, error_code, damage = position, data.error_code, ""
    aborted = _Aborted(data, isolation_level)
    log_append_time: list[range] = []
    try:
        for header, batch in whole_batches(data.records or b""):
            check(batch, header)
            if not aborted.includes(header, batch) and not header.is_control:
                found += [r for r in records(batch, header) if r.offset >= position]
                if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                    is_adjacent = bool(log_append_time) and log_append_time[-1].stop == header.base_offset
                    first = log_append_time.pop().start if is_adjacent else header.base_offset
                    log_append_time.append(range(first, header.next_offset))
            following = max(following, header.next_offset)
    except CodecError as error:
        if following == position:
            error_code, damage = Errors.CORRUPT_MESSAGE, str(error)
    return Fetched(
        tp, error_code, found, following, data.high_watermark, data.last_stable_offset,
        data.log_start_offset, damage, tuple(log_append_time),
    )  # fmt: skip


class _Aborted:
    """The aborted transactions in a response; none unless the isolation level is READ_COMMITTED."""

    def __init__(self, data: PartitionData, isolation_level: int) -> None:
        self._committed_only = isolation_level == READ_COMMITTED
        self._later = sorted(data.aborted_transactions or (), key=lambda t: t.first_offset)
        self._producers: set[int] = set()

    def includes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether a batch belongs to an aborted transaction. Called for every batch, in order."""
        if not self._committed_only or not header.has_producer_id:
            return False
        while self._later and self._later[0].first_offset <= header.last_offset:
            self._producers.add(self._later.pop(0).producer_id)
        if header.is_control:
            if any(control_type(r) is ControlType.ABORT for r in records(batch, header)):
                self._producers.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._producers


def _keep(
    tp: TopicPartition, position: int, data: PartitionData, isolation_level: int = READ_UNCOMMITTED
) -> FetchedBatches:
    following, error_code, damage = position, data.error_code, ""
    aborted = _Aborted(data, isolation_level)
    kept = []
    try:
        for header, batch in whole_batches(data.records or b""):
            is_aborted = aborted.includes(header, batch)
            if header.next_offset > following:
                following = header.next_offset
                if not is_aborted:
                    kept.append((header, batch))
    except CodecError as error:
        if following == position:
            error_code, damage = Errors.CORRUPT_MESSAGE, str(error)
    return FetchedBatches(tp, error_code, kept, following, data.high_watermark, data.log_start_offset, damage)


def read_error(got: Fetched | FetchedBatches, position: int) -> ClientError:
    """Return the error to raise for a partition with an error code, which was fetched at `position`."""
    about = f"reading {got.partition} at offset {position}"
    if got.error_code == Errors.CORRUPT_MESSAGE:
        return CorruptRecord(f"{about}: CORRUPT_MESSAGE: {got.damage or 'the log of the broker is damaged'}")
    return KafkaError(got.error_code, about=about)


def whole_batches(buf: bytes | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield complete batches; a broker may truncate the last one to the maximum size."""
    view = memoryview(buf)
    at = 0
    while at < len(view):
        try:
            header = read_header(view, at)
        except Truncated:
            return
        if at + header.size > len(view):
            return
        yield header, view[at : at + header.size]
        at += header.size


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped
