"""The partitions of this broker. Each has a log, and the fetches that wait for it to grow."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from konvene.codec import batches
from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader, TimestampType
from konvene.codec.compression import Compression
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.log.config import LONG_MAX, LogConfig
from konvene.log.errors import DamagedLog, LogError
from konvene.log.errors import Refused as RefusedByLog
from konvene.log.partition import Appended, PartitionLog, TimestampOffset
from konvene.shard.contract import Ending

if TYPE_CHECKING:
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.runtime.environment import Environment

log = logging.getLogger("konvene.broker")

_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")
_MAGIC_AT, _ATTRIBUTES_AT = 16, 22
_MIN_MESSAGE_SIZE = 14
"""Size of the smallest message of any format, without its length field."""
_FAST_LZ4, _HIGH_COMPRESSION_LZ4 = 1, 3
"""The codec's levels: fast compression, and the first level of high compression."""
_DEFAULT_LZ4_LEVEL = 9
"""Default of `compression.lz4.level`, for which Kafka uses fast compression, else high compression."""
MAX_DAMAGE_WARNINGS = 10
"""Maximum number of positions for which a partition logs a warning that its log is damaged."""


class Refused(Exception):
    """The rejection of a request for a partition: error code, message, and a message for each bad record."""

    def __init__(
        self, error: Errors, message: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message
        self.record_errors = record_errors


class DelayedFetch(Protocol):
    """A fetch that waits for new records of a partition."""

    def try_complete(self) -> None:
        """Complete the fetch if it has enough bytes with the new records, or if the partition was dropped."""


class LogMeter(Protocol):
    """The part of the meter that counts appends to logs and records durations of syncs."""

    def appended(self, topic: str, size: int) -> None:
        """Count a batch of `size` bytes that was appended."""

    def synced(self, topic: str, took_s: float) -> None:
        """Record the duration of a sync."""


class Partition:
    """One partition of a topic, of which this node is the leader and the only replica."""

    __slots__ = (
        "_damage",
        "_disk",
        "_hides_unsynced",
        "_meter",
        "_syncs",
        "_wall_clock_ms",
        "index",
        "leader_epoch",
        "log",
        "synced_ms",
        "topic",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        *,
        environment: Environment,
        disk: DiskThreads,
        meter: LogMeter | None,
        leader_epoch: int,
        syncs: bool,
    ) -> None:
        self._wall_clock_ms = environment.wall_clock_ms
        self._disk = disk
        self._meter = meter
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self._syncs = syncs
        self._hides_unsynced = syncs and topic not in INTERNAL_TOPICS
        self.synced_ms = environment.wall_clock_ms()
        self.waiting: dict[DelayedFetch, None] = {}
        self._damage: tuple[str, ...] = ()
        """Where damage was found and logged."""

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        """Return the end offset of the records that consumers may read; there are no replicas to wait for.

        With `konvene.log.fsync.topics` these are the synced records only. If a consumer had read records that
        a power failure then loses, it would skip the records that are written in their place."""
        return self.log.synced_offset if self._hides_unsynced else self.log.end_offset

    @property
    def synced_offset(self) -> int:
        return self.log.synced_offset

    @property
    def online(self) -> bool:
        return self.log.health.failure is None

    @property
    def max_message_bytes(self) -> int:
        return self.log.config.max_message_bytes

    @property
    def syncs(self) -> bool:
        """Return True if records that were just appended have to be synced before the response."""
        if self._syncs:
            return True
        max_unsynced = self.log.config.flush_messages
        return max_unsynced != LONG_MAX and self.log.end_offset - self.log.synced_offset >= max_unsynced

    def is_due(self, now_ms: int) -> bool:
        """Return True if a sync is due: there are unsynced records, and the last sync was `flush.ms` ago."""
        unsynced_ms = now_ms - self.synced_ms
        return self.log.synced_offset < self.log.end_offset and unsynced_ms >= self.log.config.flush_ms

    # --- writing ---

    def produce(self, data: bytes | memoryview, *, sequence_zero: bool = False) -> Appended:
        """Validate and append a producer's batch (`single_batch`). Raises `Refused`.

        With `sequence_zero` a producer that the log does not know must begin at sequence 0."""
        try:
            appended = self.log.append_as_leader(
                data, self.leader_epoch, self._wall_clock_ms(), sequence_zero=sequence_zero
            )
        except CodecError as error:
            raise Refused(Errors.CORRUPT_MESSAGE, str(error)) from None
        except RefusedByLog as error:
            raise Refused(Errors(error.code), str(error), error.record_errors) from None
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None
        if not appended.duplicate:
            if self._meter is not None:
                self._meter.appended(self.topic, appended.size)
            self._complete_fetches()
        return appended

    def append(
        self,
        pairs: list[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Appended:
        """Append one batch of the broker's own keys and values; with a producer id, in its transaction.

        Raises `LogError`."""
        appended = self.log.append_built(
            pairs, self.leader_epoch, now_ms, producer_id=producer_id, producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )  # fmt: skip
        return self._on_append(appended)

    def append_marker(self, ending: Ending, now_ms: int) -> Appended:
        """Append the marker that ends a transaction. Raises `LogError`."""
        appended = self.log.append_marker(
            ending.committed, self.leader_epoch, now_ms, producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch, coordinator_epoch=ending.coordinator_epoch,
            transaction_version=ending.transaction_version,
        )  # fmt: skip
        return self._on_append(appended)

    def _on_append(self, appended: Appended) -> Appended:
        if self._meter is not None:
            self._meter.appended(self.topic, appended.size)
        self._complete_fetches()
        return appended

    def _complete_fetches(self) -> None:
        if self.waiting:
            for waiting in list(self.waiting):
                waiting.try_complete()

    async def sync(self) -> None:
        """Sync the log, so that all appended records are durable. Raises `LogError`."""
        self.synced_ms = self._wall_clock_ms()
        began_s = perf_counter()
        await self._disk.sync(self.log)
        if self._meter is not None:
            self._meter.synced(self.topic, perf_counter() - began_s)
        if self._hides_unsynced:
            self._complete_fetches()

    async def sync_finished(self) -> None:
        """Make the finished segments durable, so that they can be cleaned before the next checkpoint.

        Their data was synced when they were rolled; their indexes are written now. Raises `LogError`."""
        if self.log.has_unsynced_segments:
            await self._disk.run(self.log.sync_finished)

    # --- reading ---

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise `Refused` unless a client's leader epoch is the partition's, or -1 (unknown)."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        raise Refused(
            Errors.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else Errors.UNKNOWN_LEADER_EPOCH
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the last leader epoch not above `epoch` and its end offset; (-1, -1) if unknown.

        The log only knows epochs with records. Later ones up to the partition's are empty: they end at the
        log's end."""
        if self.log.epochs.latest < epoch <= self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.leader_epoch_end(epoch)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> bytes | memoryview:
        """Return batches of `max_bytes` at most, from the one that contains `offset` on. Raises `Refused`.

        With `min_one` at least one batch is returned, whatever its size."""
        try:
            return self.log.read(offset, max_bytes, min_one=min_one)
        except DamagedLog as damage:
            raise self.report_damage(damage) from None
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None

    def report_damage(self, damage: DamagedLog | CodecError) -> Refused:
        """Log damage that a read has found, and return the error for the client: CORRUPT_MESSAGE, as in
        Kafka.

        Each position is logged once, and at most `MAX_DAMAGE_WARNINGS` of them."""
        text = str(damage)
        where = f"{damage.path} {damage.position}" if isinstance(damage, DamagedLog) else text
        if where not in self._damage and len(self._damage) < MAX_DAMAGE_WARNINGS:
            self._damage += (where,)
            log.warning(
                "%s cannot be read: %s; `konvene log verify %s` shows all damage",
                self, text, self.log.directory,
            )  # fmt: skip
        return Refused(Errors.CORRUPT_MESSAGE, text)

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Return an iterator over all batches, from which a coordinator is loaded."""
        return self.log.batches_from(self.log.start_offset)

    def delete_before(self, offset: int) -> int:
        """Delete the records before `offset`; return the new start offset. Raises `Refused`."""
        try:
            return self.log.delete_records_before(offset)
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None

    def at_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record not older than `timestamp_ms`, or None.

        Raises `Refused` if the log is damaged."""
        try:
            return _pair(self.log.offset_for_timestamp(timestamp_ms))
        except DamagedLog as damage:
            raise self.report_damage(damage) from None

    def latest_timestamp(self) -> tuple[int, int] | None:
        """Return the latest timestamp in the log and the offset of its record; None if the log is empty.

        Raises `Refused` if the log is damaged."""
        try:
            return _pair(self.log.max_timestamp())
        except DamagedLog as damage:
            raise self.report_damage(damage) from None


def single_batch(data: bytes | memoryview, *, zstd: bool) -> bytes | memoryview:
    """Return the batch in a Produce request's data for a partition. Raises `Refused` unless it is one batch.

    As in Kafka, an incomplete batch does not count, so one after the first is ignored. `zstd` is True if the
    request's version allows zstd compression.
    """
    size = _complete_batch_size(data, 0)
    if not size:
        raise Refused(Errors.INVALID_RECORD, "no record batch")
    if data[_MAGIC_AT] != batches.MAGIC:
        raise Refused(Errors.INVALID_RECORD, f"a message of magic {data[_MAGIC_AT]}")
    if size < batches.HEADER_SIZE:
        raise Refused(Errors.CORRUPT_MESSAGE, f"a batch of {size} bytes")
    codec = data[_ATTRIBUTES_AT] & 0x07
    if codec == Compression.ZSTD and not zstd:
        raise Refused(Errors.UNSUPPORTED_COMPRESSION_TYPE)
    if codec > Compression.ZSTD:
        raise Refused(Errors.INVALID_RECORD, f"compression {codec} does not exist")
    if size == len(data):
        return data
    if _complete_batch_size(data, size):
        raise Refused(Errors.INVALID_RECORD, "more than one record batch")
    return memoryview(data)[:size]


def _complete_batch_size(data: bytes | memoryview, position: int) -> int:
    """Return the size of the batch at `position`; 0 if it is incomplete. Raises `Refused`."""
    if len(data) - position < _SIZE_AND_MAGIC.size:
        return 0
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
    if size < _MIN_MESSAGE_SIZE:
        message = f"Record size {size} is less than the minimum record overhead ({_MIN_MESSAGE_SIZE})"
        raise Refused(Errors.CORRUPT_MESSAGE, message)
    if not 0 <= magic <= batches.MAGIC:
        raise Refused(Errors.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    size += batches.PREFIX_SIZE
    return int(size) if size <= len(data) - position else 0


def is_transactional(data: bytes | memoryview) -> bool:
    """Return True if a producer's batch is transactional. Raises `Refused` if `data` is not a batch."""
    return _complete_batch_size(data, 0) >= batches.HEADER_SIZE and data[_ATTRIBUTES_AT] & 0x10 != 0


def log_config(
    values: Mapping[str, Any], producer_id_expiration_ms: int, *, sync_on_roll: bool = True
) -> LogConfig:
    """Return the `LogConfig` of a topic's logs, given all its config values.

    With `sync_on_roll` a finished segment is synced before the next one takes records."""
    is_log_append_time = values["message.timestamp.type"] == "LogAppendTime"
    compression, level = _compression(values)
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        cleanup_policy=frozenset(values["cleanup.policy"]),
        delete_retention_ms=values["delete.retention.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        max_message_bytes=values["max.message.bytes"],
        max_decompressed_message_bytes=values["max.decompressed.message.bytes"],
        compression=compression,
        compression_level=level,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME
        if is_log_append_time
        else TimestampType.CREATE_TIME,
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        producer_id_expiration_ms=producer_id_expiration_ms,
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        sync_on_roll=sync_on_roll,
    )


def _compression(values: Mapping[str, Any]) -> tuple[Compression | None, int | None]:
    """Return the codec of a topic, None for the producer's, and its level, None if it has none."""
    name = values["compression.type"]
    if name == "producer":
        return None, None
    codec = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
    lz4_level = values["compression.lz4.level"]
    levels = {
        Compression.GZIP: values["compression.gzip.level"],
        Compression.LZ4: _FAST_LZ4
        if lz4_level == _DEFAULT_LZ4_LEVEL
        else max(lz4_level, _HIGH_COMPRESSION_LZ4),
        Compression.ZSTD: values["compression.zstd.level"],
    }
    return codec, levels.get(codec)


def _pair(entry: TimestampOffset | None) -> tuple[int, int] | None:
    return None if entry is None else (entry.timestamp, entry.offset)


class Partitions:
    """All open partitions of a broker by topic and index, and the names of the offline ones."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, int], Partition] = {}
        self.offline: set[tuple[str, int]] = set()
        """Partitions with a damaged log. Requests fail with KAFKA_STORAGE_ERROR until it is repaired."""

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return f"<{len(self._all)} partitions>"

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._all.values())

    def get(self, topic: str, index: int) -> Partition | None:
        return self._all.get((topic, index))

    def missing_error(self, topic: str, index: int, missing: Errors) -> Errors:
        """Return the error for a partition without log: KAFKA_STORAGE_ERROR if offline, else `missing`."""
        return Errors.KAFKA_STORAGE_ERROR if (topic, index) in self.offline else missing

    def put(self, partition: Partition) -> None:
        self._all[partition.topic, partition.index] = partition

    def drop(self, topic: str, index: int) -> Partition | None:
        """Remove a partition and complete the fetches that wait for it."""
        partition = self._all.pop((topic, index), None)
        if partition is not None:
            for waiting in list(partition.waiting):
                waiting.try_complete()
        return partition
