"""The partitions that this broker has: a log each, and the fetches that wait for it to grow."""

from __future__ import annotations

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
from konvene.log.errors import LogError
from konvene.log.errors import Refused as RefusedByLog
from konvene.log.partition import Appended, PartitionLog, TimestampOffset
from konvene.shard.contract import Ending

if TYPE_CHECKING:
    from konvene.broker.storage.disk_threads import DiskThreads
    from konvene.runtime.environment import Environment

_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")
_MAGIC_AT, _ATTRIBUTES_AT = 16, 22
_SMALLEST = 14
"""Bytes behind the length of the smallest message that there ever was."""
_QUICK_LZ4, _THOROUGH_LZ4 = 1, 3
"""The codec's own levels: quick ones are below, thorough ones from the second on."""
_ASKS_FOR_QUICK_LZ4 = 9
"""The default of `compression.lz4.level`: with it Kafka takes the quick compressor, else the thorough one."""


class Refused(Exception):
    """A partition's answer where it cannot do what was asked, and the records at fault if they are told."""

    def __init__(
        self, error: Errors, message: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message
        self.record_errors = record_errors


class DelayedFetch(Protocol):
    """Somebody who wants to know when a partition has grown."""

    def try_complete(self) -> None: ...


class LogMeter(Protocol):
    """Counts appends to logs and times their syncs."""

    def appended(self, topic: str, size: int) -> None:
        """Count a batch of `size` bytes that was appended."""

    def synced(self, topic: str, took_s: float) -> None:
        """Record the duration of a sync."""


class Partition:
    """One partition on this node, which leads it."""

    __slots__ = (
        "_disk", "_meter", "_shows_synced", "_syncs", "_wall_clock_ms", "index", "leader_epoch", "log",
        "synced_ms", "topic", "waiting",
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
        self._shows_synced = syncs and topic not in INTERNAL_TOPICS
        self.synced_ms = environment.wall_clock_ms()
        self.waiting: dict[DelayedFetch, None] = {}

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
        """Up to where consumers see: there is no other replica to wait for.

        Where every write waits for the disk, so does every reader: a consumer that read what a power cut
        takes back would stand behind the records that take its place, and never read them."""
        return self.log.synced_offset if self._shows_synced else self.log.end_offset

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
        """Whether what was just written has to be on the disk before it is answered."""
        if self._syncs:
            return True
        most = self.log.config.flush_messages
        return most != LONG_MAX and self.log.end_offset - self.log.synced_offset >= most

    def is_due(self, now_ms: int) -> bool:
        """Whether something has waited to be on the disk for longer than `flush.ms`."""
        waited = now_ms - self.synced_ms
        return self.log.synced_offset < self.log.end_offset and waited >= self.log.config.flush_ms

    # --- writing ---

    def produce(self, data: bytes | memoryview, *, sequence_zero: bool = False) -> Appended:
        """Check and append a producer's batch (`single_batch`). Raises `Refused`."""
        try:
            done = self.log.append_as_leader(
                data, self.leader_epoch, self._wall_clock_ms(), sequence_zero=sequence_zero
            )
        except CodecError as error:
            raise Refused(Errors.CORRUPT_MESSAGE, str(error)) from None
        except RefusedByLog as error:
            raise Refused(Errors(error.code), str(error), error.record_errors) from None
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None
        if not done.duplicate:
            if self._meter is not None:
                self._meter.appended(self.topic, done.size)
            self._grown()
        return done

    def append(
        self,
        pairs: list[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Appended:
        """Append records of the broker's own as one batch; with a producer's id, in its transaction.

        Raises `LogError`."""
        done = self.log.append_built(
            pairs, self.leader_epoch, now_ms, producer_id=producer_id, producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )  # fmt: skip
        return self._appended(done)

    def append_marker(self, ending: Ending, now_ms: int) -> Appended:
        """Append the end of a transaction. Raises `LogError`."""
        done = self.log.append_marker(
            ending.committed, self.leader_epoch, now_ms, producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch, coordinator_epoch=ending.coordinator_epoch,
            transaction_version=ending.transaction_version,
        )  # fmt: skip
        return self._appended(done)

    def _appended(self, done: Appended) -> Appended:
        if self._meter is not None:
            self._meter.appended(self.topic, done.size)
        self._grown()
        return done

    def _grown(self) -> None:
        if self.waiting:
            for waiting in list(self.waiting):
                waiting.try_complete()

    async def sync(self) -> None:
        """Make what is written durable. Raises `LogError`."""
        self.synced_ms = self._wall_clock_ms()
        began_s = perf_counter()
        await self._disk.sync(self.log)
        if self._meter is not None:
            self._meter.synced(self.topic, perf_counter() - began_s)
        if self._shows_synced:
            self._grown()

    # --- reading ---

    def check_leader_epoch(self, epoch: int) -> None:
        """A client that knows another leadership has to look again."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        raise Refused(
            Errors.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else Errors.UNKNOWN_LEADER_EPOCH
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The last epoch not above this one, and where it ended; (-1, -1) if that cannot be said.

        The log knows only epochs in which something was written; those since then have nothing yet.
        """
        if self.log.epochs.latest < epoch <= self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.leader_epoch_end(epoch)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> bytes | memoryview:
        """Batches from the one that has `offset` on. Raises `Refused`."""
        try:
            return self.log.read(offset, max_bytes, min_one=min_one)
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches, for whoever loads them."""
        return self.log.batches_from(self.log.start_offset)

    def delete_before(self, offset: int) -> int:
        """Let go of the records before `offset`; the new start. Raises `Refused`."""
        try:
            return self.log.delete_records_before(offset)
        except LogError as error:
            raise Refused(Errors(error.code), str(error)) from None

    def at_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record that is not older."""
        return _pair(self.log.offset_for_timestamp(timestamp_ms))

    def latest_timestamp(self) -> tuple[int, int] | None:
        """The newest timestamp and its offset."""
        return _pair(self.log.max_timestamp())


def single_batch(data: bytes | memoryview, *, zstd: bool) -> bytes | memoryview:
    """The one batch that a Produce may bring to a partition. Raises `Refused`.

    As Kafka finds it: a batch that is cut is none, so what is cut behind the first one is passed over.
    """
    size = _whole(data, 0)
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
    if _whole(data, size):
        raise Refused(Errors.INVALID_RECORD, "more than one record batch")
    return memoryview(data)[:size]


def _whole(data: bytes | memoryview, at: int) -> int:
    """The size of the batch that begins here; 0 if it is cut. Raises `Refused`."""
    if len(data) - at < _SIZE_AND_MAGIC.size:
        return 0
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    if size < _SMALLEST:
        why = f"Record size {size} is less than the minimum record overhead ({_SMALLEST})"
        raise Refused(Errors.CORRUPT_MESSAGE, why)
    if not 0 <= magic <= batches.MAGIC:
        raise Refused(Errors.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    size += batches.PREFIX_SIZE
    return int(size) if size <= len(data) - at else 0


def is_transactional(data: bytes | memoryview) -> bool:
    """Whether a producer's batch says that it belongs to a transaction. `Refused` if it is none at all."""
    return _whole(data, 0) >= batches.HEADER_SIZE and data[_ATTRIBUTES_AT] & 0x10 != 0


def log_config(
    values: Mapping[str, Any], producer_id_expiration_ms: int, *, sync_on_roll: bool = True
) -> LogConfig:
    """A topic's settings as its logs want them."""
    stamped = values["message.timestamp.type"] == "LogAppendTime"
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
        message_timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        producer_id_expiration_ms=producer_id_expiration_ms,
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        sync_on_roll=sync_on_roll,
    )


def _compression(values: Mapping[str, Any]) -> tuple[Compression | None, int | None]:
    """The codec that a topic asks for, and its level; None where it is the producer's, or the codec's own."""
    name = values["compression.type"]
    if name == "producer":
        return None, None
    codec = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
    lz4 = values["compression.lz4.level"]
    levels = {
        Compression.GZIP: values["compression.gzip.level"],
        Compression.LZ4: _QUICK_LZ4 if lz4 == _ASKS_FOR_QUICK_LZ4 else max(lz4, _THOROUGH_LZ4),
        Compression.ZSTD: values["compression.zstd.level"],
    }
    return codec, levels.get(codec)


def _pair(found: TimestampOffset | None) -> tuple[int, int] | None:
    return None if found is None else (found.timestamp, found.offset)


class Partitions:
    """All partitions by topic and index."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, int], Partition] = {}
        self.offline: set[tuple[str, int]] = set()
        """Partitions whose log is damaged: they answer KAFKA_STORAGE_ERROR until somebody decides."""

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return f"<{len(self._all)} partitions>"

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._all.values())

    def get(self, topic: str, index: int) -> Partition | None:
        return self._all.get((topic, index))

    def why_not(self, topic: str, index: int, missing: Errors) -> Errors:
        """The error for a partition that `get` does not have."""
        return Errors.KAFKA_STORAGE_ERROR if (topic, index) in self.offline else missing

    def put(self, partition: Partition) -> None:
        self._all[partition.topic, partition.index] = partition

    def drop(self, topic: str, index: int) -> Partition | None:
        """Forget a partition; whoever waits for it finds out."""
        partition = self._all.pop((topic, index), None)
        if partition is not None:
            for waiting in list(partition.waiting):
                waiting.try_complete()
        return partition
