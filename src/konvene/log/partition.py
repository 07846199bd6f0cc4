"""The log of one partition: assigns offsets to records, and appends, reads, syncs and deletes them.

A log decides what may be appended, which segment it goes to, which range may be read and what may be deleted.
Replication and waiting requests are its callers' business, which read `end_offset` (written) and
`synced_offset` (durable).

One thread appends, reads and deletes. `sync()` may run on another thread at the same time: it takes the end
offset first, makes everything below it durable in the order data, indexes, epochs, and then advances
`synced_offset`.

Nothing is retried after a failed write or sync: the shared `Health` records the failure and every later call
raises `LogOffline` until the process restarts and recovers. Half a batch at the end of a file is then an
ordinary torn tail.

The module is long, because append, sync, read and delete share the same few fields, and their invariants are
easiest to check in one place.

Segments are the unit of deletion. Reads return whole batches of one segment; a batch that begins before the
requested offset is returned whole, as Kafka does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from konvene.codec.batches import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    EndMarker,
    TimestampType,
    batches,
    build_simple,
    end_marker,
    read_end_marker,
    read_header,
    records,
    stamp,
)
from konvene.codec.compression import Buffer
from konvene.codec.errors import CodecError
from konvene.log import closing
from konvene.log.cleaner.recovery import remove_unfinished_files
from konvene.log.config import LogConfig
from konvene.log.disk.files import Disk, replace
from konvene.log.epochs import FILE_NAME as EPOCHS_NAME
from konvene.log.epochs import LeaderEpochs
from konvene.log.errors import (
    InvalidRecord,
    LogDeleted,
    LogError,
    LogOffline,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from konvene.log.producers import AbortedTransaction, Origin, Producers
from konvene.log.segment import Segment
from konvene.log.truncating import truncate
from konvene.log.validation import too_large, validate, validate_batch

if TYPE_CHECKING:
    from konvene.log.cleaner.contract import CleaningTask

_INDEX_ENTRY_BYTES = 8


class Health:
    """The state that all logs of a data directory share: `failure` is None until the directory is offline."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: LogError | None = None

    def __repr__(self) -> str:
        return "Health(good)" if self.failure is None else f"Health({self.failure})"

    def fail(self, what: str, error: OSError) -> NoReturn:
        """Take the directory offline and raise `LogOffline`; the first failure remains the reason."""
        if self.failure is None:
            self.failure = LogOffline(f"{what}: {error}")
        raise self.refusal() from error

    def refusal(self) -> LogError:
        """Return an error to raise for an operation on the offline directory.

        Each call makes a new one, because an exception that is raised twice accumulates tracebacks.
        """
        failure = self.failure
        return LogOffline("not in use") if failure is None else type(failure)(*failure.args)


class Appended(NamedTuple):
    """The offsets of an append. A duplicate, which is not written again, has those of its first copy."""

    base_offset: int
    last_offset: int
    size: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class TimestampOffset(NamedTuple):
    """Timestamp, offset and leader epoch of a record that was found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class PartitionLog:
    """The log of one partition; `konvene.log.opening.open_log` creates it."""

    __slots__ = (
        "_active",
        "_directory_unsynced",
        "_disk",
        "_sync_lock",
        "_unsynced",
        "aborted",
        "cleaning",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "has_unfinished_files",
        "health",
        "producers",
        "replaced",
        "segments",
        "snapshot_offset",
        "start_offset",
        "synced_offset",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, health: Health) -> None:
        """Create an empty object, which `konvene.log.opening` fills from the files."""
        self._disk = disk
        self.directory = directory
        self.config = config
        self.health = health
        self.segments: list[Segment] = []
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self.epochs = LeaderEpochs()
        self.producers = Producers()
        #: Offset of the newest producer snapshot that the last close wrote.
        self.snapshot_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        #: The running cleaning: `retain` waits for it, truncation cancels it.
        self.cleaning: CleaningTask | None = None
        #: True if unfinished files of a cleaning may be in the folder.
        self.has_unfinished_files = False
        #: Segments that a cleaning has replaced, with the time of replacement; open readers may go on using
        #: them.
        self.replaced: dict[Segment, int | None] = {}
        self._active: Segment
        #: Finished segments whose data or indexes are not durable yet.
        self._unsynced: list[Segment] = []
        #: True if a file was created whose directory entry is not durable yet.
        self._directory_unsynced = False
        self._sync_lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.directory}: {self.start_offset}..{self.end_offset}, "
            f"synced to {self.synced_offset}, {len(self.segments)} segments)"
        )

    @property
    def size(self) -> int:
        """Size of all segments in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def has_unsynced_segments(self) -> bool:
        """True if the data or indexes of a finished segment are not durable yet (`sync_finished`)."""
        return bool(self._unsynced)

    # appending -------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: Buffer,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        sequence_zero: bool = False,
        validate_records: bool = True,
    ) -> Appended:
        """Append encoded batches: exactly one from a client, one or more from another origin.

        Offsets and epoch are written into `data` in place if it is writable. For a duplicate batch nothing is
        written, and the offsets of its first copy are returned. With `sequence_zero` an unknown producer must
        begin at sequence 0. With `validate_records=False` only the batch headers are checked. Raises a
        `Refused` (nothing written), a `CodecError` if the bytes are damaged, or `LogOffline` if the disk
        fails.
        """
        if self.health.failure is not None:
            raise self.health.refusal()
        if not data:
            raise InvalidRecord("an append without a batch")
        first = read_header(data)
        sizes = [first.size] if first.size == len(data) else [header.size for header, _ in batches(data)]
        if origin is Origin.CLIENT and len(sizes) != 1:
            raise InvalidRecord(f"{len(sizes)} batches in one append of a client")
        data, headers = self._validate(data, first, sizes, now_ms, origin, validate_records)
        for header, _ in headers:
            if header.producer_id > NO_PRODUCER_ID:
                known = self.producers.check(header, origin=origin, sequence_zero=sequence_zero)
                if known is not None:
                    return Appended(known.first_offset, known.last_offset, 0, known.timestamp, True)
        stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        base = offset = self.end_offset
        placed, at = [], 0
        with memoryview(data) as view:
            for header, newest in headers:
                changed = None if newest == header.max_timestamp else newest
                batch = view[at : at + header.size]
                stamp(batch, offset, leader_epoch, now_ms if stamped else None, changed)
                header = read_header(data, at)
                placed.append(header)
                offset = header.next_offset
                at += header.size
        self._write(data, placed, now_ms)
        return Appended(base, offset - 1, len(data), now_ms if stamped else NO_TIMESTAMP)

    def append_built(
        self,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        leader_epoch: int,
        now_ms: int,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
    ) -> Appended:
        """Append a coordinator's (key, value) pairs as one batch with timestamp `now_ms`.

        Raises `MessageTooLarge`, with nothing written, if the batch exceeds `max.message.bytes`.
        """
        if self.health.failure is not None:
            raise self.health.refusal()
        base = self.end_offset
        data = build_simple(
            pairs,
            now_ms,
            base_offset=base,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,  # As Kafka's coordinators, also where there is no producer.
            transactional=transactional,
        )
        if len(data) > self.config.max_message_bytes:
            raise too_large(len(data), self.config)
        header = read_header(data)
        if producer_id > NO_PRODUCER_ID:
            self.producers.check(header, origin=Origin.COORDINATOR)
        self._write(data, (header,), now_ms)
        return Appended(base, self.end_offset - 1, len(data))

    def append_marker(
        self,
        committed: bool,
        leader_epoch: int,
        now_ms: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Append an end-transaction marker. Raises `InvalidProducerEpoch` or
        `TransactionCoordinatorFenced`."""
        if self.health.failure is not None:
            raise self.health.refusal()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        data = end_marker(
            committed,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=self.end_offset,
            leader_epoch=leader_epoch,
        )
        self._write(data, (read_header(data),), now_ms, EndMarker(committed, coordinator_epoch))
        return Appended(self.end_offset - 1, self.end_offset - 1, len(data))

    def _validate(
        self,
        data: Buffer,
        first: BatchHeader,
        sizes: list[int],
        now_ms: int,
        origin: Origin,
        validate_records: bool,
    ) -> tuple[bytearray | memoryview, list[tuple[BatchHeader, int]]]:
        """Validate the batches as Kafka does, and recompress them if the topic uses another compression.

        Returns the bytes to write, in a writable buffer, and each batch's header and newest timestamp.
        `first` is the header of the first batch, and `sizes` are the sizes of all.
        """
        name = self.directory.rpartition("/")[2]
        found: list[tuple[BatchHeader, int]] = []
        parts: list[Buffer] = []
        changed, at = False, 0
        with memoryview(data) as view:
            for size in sizes:
                header, batch = read_header(data, at) if at else first, view[at : at + size]
                parts.append(batch)
                if validate_records:
                    newest, repacked = validate(batch, header, self.config, name, now_ms, origin)
                    if repacked is not None:
                        header, changed, parts[-1] = read_header(repacked), True, repacked
                else:
                    validate_batch(batch, header, self.config, origin)
                    newest = header.max_timestamp
                found.append((header, newest))
                at += size
            if changed:
                return bytearray().join(parts), found
        if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
            data = bytearray(data)
        return data, found

    def _write(
        self, data: Buffer, headers: Sequence[BatchHeader], now_ms: int, marker: EndMarker | None = None
    ) -> None:
        """Append the bytes, and update indexes, epochs, producers and the end offset.

        `marker` is the content of a marker, if the caller has it; otherwise it is decoded here.
        """
        size = len(data)
        segment = self._active
        last = headers[-1]
        if segment.size + size > self.config.segment_bytes or (
            segment.size and self._should_roll(segment, last, now_ms)
        ):
            if size > self.config.segment_bytes:
                raise RecordListTooLarge(
                    f"{size} bytes are more than a segment's {self.config.segment_bytes}"
                )
            if segment.size:
                segment = self.roll(now_ms)
        try:
            segment.append(data)
        except OSError as error:
            self.health.fail(f"cannot append to {segment.path}", error)
        at = 0
        for header in headers:
            segment.note(header.last_offset, header.max_timestamp, header.size)
            if header.partition_leader_epoch > self.epochs.latest:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id > NO_PRODUCER_ID:
                self._note_producer(header, memoryview(data)[at : at + header.size], segment, marker)
            at += header.size
        self.end_offset = last.next_offset

    def _should_roll(self, segment: Segment, last: BatchHeader, now_ms: int) -> bool:
        """Return True if the active segment must be rolled: by age, index size or offset range, as Kafka's
        `shouldRoll`."""
        if segment.first_timestamp >= 0 and last.max_timestamp >= 0:
            waited = last.max_timestamp - segment.first_timestamp
        else:
            waited = now_ms - segment.created_ms
        try:
            index_bytes = len(segment.offsets) * _INDEX_ENTRY_BYTES
        except OSError as error:  # The first use of a log that was taken up as it was left.
            self.health.fail(f"cannot read the index of {segment.path}", error)
        return (
            waited > self.config.max_segment_ms
            or index_bytes >= self.config.segment_index_bytes
            or last.last_offset - segment.base_offset > 0x7FFF_FFFF
        )

    def _note_producer(
        self, header: BatchHeader, batch: memoryview, segment: Segment, marker: EndMarker | None
    ) -> None:
        if not header.is_control:
            self.producers.note(header)
            return
        if marker is None:
            entries = records(batch, header)
            marker = read_end_marker(entries[0]) if entries else None
        if marker is None:
            return
        aborted = self.producers.note_marker(header, marker)
        if aborted is not None:
            segment.aborted.append(aborted)
            self.aborted.append(aborted)

    def roll(self, now_ms: int) -> Segment:
        """Finish the active segment, and create and return the next one.

        The next `sync` writes the indexes of the old segment. Its data is synced here, before the new segment
        takes records: otherwise a power cut could keep the new records and lose old ones, a gap that recovery
        must reject. (`LogConfig.sync_on_roll` can disable this.)
        """
        old = self._active
        try:
            _ = old.offsets  # Loaded here, while no other thread uses the segment.
            if self.config.sync_on_roll and old.next_offset > self.synced_offset:
                old.file.sync()
        except OSError as error:
            self.health.fail(f"cannot sync {old.path}", error)
        old.snapshot = self.producers.snapshot()
        try:
            new = Segment.create(
                self._disk, self.directory, self.end_offset, self.config.index_interval_bytes, now_ms
            )
        except OSError as error:
            self.health.fail(f"cannot roll {self.directory}", error)
        self._directory_unsynced = True
        self._unsynced.append(old)
        self.segments.append(new)
        # Last: `sync` looks at the active segment first and at the finished ones after it.
        self._active = new
        return new

    # syncing ---------------------------------------------------------------------------------

    def sync(self) -> int:
        """Make everything written before this call durable; return the end offset of the durable records.

        May run on another thread than the appending one. Raises `LogOffline` if the disk fails.
        """
        with self._sync_lock:
            if self.health.failure is not None:
                raise self.health.refusal()
            goal = self.end_offset
            active = self._active
            finished = list(self._unsynced)
            try:
                if goal > self.synced_offset or finished or self._directory_unsynced:
                    self._sync_files(active, finished)
                self._write_epochs()
            except OSError as error:
                self.health.fail(f"cannot sync {self.directory}", error)
            self.synced_offset = max(goal, self.synced_offset)
            return self.synced_offset

    def _sync_files(self, active: Segment, finished: list[Segment]) -> None:
        for segment in finished:
            segment.file.sync()
            segment.write_indexes()
        active.file.sync()
        if self._directory_unsynced:
            self._directory_unsynced = False
            self._disk.sync_directory(self.directory)
        for segment in finished:
            self._unsynced.remove(segment)

    def sync_finished(self) -> int:
        """Make all finished segments and their indexes durable; return the advanced `synced_offset`.

        For logs that are not synced otherwise: a start after a crash need not read these segments. May run on
        any thread.
        """
        with self._sync_lock:
            finished = list(self._unsynced)
            if not finished or self.health.failure is not None:
                return self.synced_offset
            try:
                for segment in finished:
                    segment.file.sync()
                    segment.write_indexes()
                    self._unsynced.remove(segment)
                self._disk.sync_directory(self.directory)
                self._write_epochs()
            except OSError as error:
                self.health.fail(f"cannot sync {self.directory}", error)
            self.synced_offset = max(self.synced_offset, finished[-1].next_offset)
            return self.synced_offset

    def _write_epochs(self, *, durably: bool = True) -> None:
        if self.epochs.dirty:
            self.epochs.dirty = False
            replace(self._disk, f"{self.directory}/{EPOCHS_NAME}", self.epochs.encode(), durably=durably)

    def close(self, *, clean: bool = True) -> None:
        """Sync, write the closing files (see `closing`) and close all files; with `clean=False` only close
        them."""
        if clean and self.health.failure is None:
            if not closing.has_closing_files(self):
                self.sync()
                closing.write_closing_files(self)
            closing.remove_cleaning_leftovers(self)
        for segment in (*self.segments, *self.replaced):
            segment.file.close()

    def abandon(self) -> None:
        """Close the log of a partition that is being deleted; later calls raise `LogDeleted`."""
        self.close(clean=False)
        self.health = Health()
        self.health.failure = LogDeleted(f"{self.directory} has been deleted")

    # reading ---------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upto: int | None = None, min_one: bool = True) -> bytes:
        """Return whole batches of one segment, from the one that contains `offset`, below the offset `upto`.

        Returns at most `max_bytes`, but with `min_one` at least one batch; nothing if `offset` is the end.
        Raises `OffsetOutOfRange` if `offset` is below the start or above the end.
        """
        end = self.end_offset if upto is None else min(upto, self.end_offset)
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not within {self.start_offset} .. {self.end_offset}")
        if offset >= end:
            return b""
        try:
            for segment in self._segments_from(offset):
                found = segment.locate(offset)
                if found is not None:
                    return self._slice(segment, found, end, max_bytes, min_one)
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)
        return b""

    def _slice(
        self, segment: Segment, first: tuple[int, int], end: int, max_bytes: int, min_one: bool
    ) -> bytes:
        position, size = first
        limit = segment.size
        if end < segment.next_offset:
            bound = segment.locate(end)
            if bound is not None:
                limit = bound[0]
        if position >= limit:
            return b""
        if size > max_bytes:
            return segment.file.pread(size, position) if min_one else b""
        if limit - position > max_bytes:
            return segment.read_whole(position, max_bytes)
        return segment.file.pread(limit - position, position)

    def batches_from(
        self, offset: int | None = None, upto: int | None = None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each batch from the one that contains `offset` (default: start) up to `upto` (default: end).

        Checksums are not verified. A view is valid until the next batch is requested. If a cleaning has
        replaced the segment meanwhile, reading continues in the new one.
        """
        start = self.start_offset if offset is None else offset
        end = self.end_offset if upto is None else min(upto, self.end_offset)
        if start < self.start_offset or start > self.end_offset:
            raise OffsetOutOfRange(f"{start} is not within {self.start_offset} .. {self.end_offset}")
        try:
            while start < end:
                segment = self._segments_from(start)[0]
                if segment.base_offset > start:
                    raise OffsetOutOfRange(f"{start} was deleted while it was read")
                header = None
                try:
                    found = segment.locate(start)
                    for header, view in segment.scan(found[0]) if found is not None else ():
                        if header.base_offset >= end:
                            return
                        yield header, view
                    if segment is self.segments[-1]:
                        return
                    start = max(start, segment.next_offset)
                except FileNotFoundError:
                    if segment in self.segments:
                        raise
                    if header is not None:
                        start = header.next_offset
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the high watermark, or the start of an earlier transaction without a marker below it."""
        return self.producers.last_stable_offset(high_watermark)

    def aborted_transactions(self, offset: int, upto: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap `offset .. upto`."""
        return [entry for entry in self.aborted if entry.last_offset >= offset and entry.first_offset < upto]

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record with a timestamp of at least `timestamp`, or None."""
        try:
            for segment in list(self.segments):
                _ = segment.times
                if segment.max_timestamp < timestamp or segment.next_offset <= self.start_offset:
                    continue
                found = self._search(segment, timestamp)
                if found is not None:
                    return found
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)
        return None

    def timestamp_at(self, offset: int) -> int | None:
        """Return the first timestamp of the batch with `offset`, or of the next batch; only headers are read.

        None at the end of the log, and for a batch without timestamps. Raises `LogError`."""
        first = max(offset, self.start_offset)
        try:
            for segment in self._segments_from(first):
                found = segment.locate(first)
                if found is not None:
                    header = segment.header_at(found[0])
                    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
                    has_base = not is_append_time and header.delete_horizon is None
                    timestamp = header.base_timestamp if has_base else header.max_timestamp
                    return timestamp if timestamp != NO_TIMESTAMP else None
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp, or None in an empty log."""
        best: Segment | None = None
        for segment in self.segments:
            _ = segment.times
            if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
                best = segment
        return None if best is None else self._search(best, best.max_timestamp)

    def _search(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        begin = max(segment.times.lookup(timestamp - 1), self.start_offset)
        for header, view in segment.scan(segment.offsets.lookup(begin)):
            if header.max_timestamp < timestamp or header.last_offset < self.start_offset:
                continue
            for record in records(view, header):
                if record.timestamp >= timestamp and record.offset >= self.start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def leader_epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch up to `epoch` and its end offset, see `LeaderEpochs.end_of`."""
        return self.epochs.end_of(epoch, self.end_offset)

    def _segments_from(self, offset: int) -> list[Segment]:
        """Return the segment that contains `offset` and all later ones."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return segments[-1:]
        low, high = 0, len(segments)
        while high - low > 1:
            middle = (low + high) // 2
            if segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle
        return segments[low:]

    # deleting --------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the end); return the log start offset.

        Records below it become unreadable; the next `retain` deletes their segments. The directory's
        checkpoint stores it.
        """
        if self.health.failure is not None:
            raise self.health.refusal()
        target = self.end_offset if offset == -1 else offset
        if target > self.end_offset or target < 0:
            raise OffsetOutOfRange(f"{offset} is behind the end {self.end_offset}")
        if target > self.start_offset:
            self.start_offset = target
            self.epochs.truncate_start(target)
        return self.start_offset

    def retain(self, now_ms: int) -> list[int]:
        """Delete segments by age, size and log start offset; return their base offsets.

        The oldest are deleted first. A segment that is being synced stays, and so do all while the log is
        being cleaned. The active segment is deleted only if all its records are too old; a new one is created
        first, as in Kafka.
        """
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        expired = self.expired_segments(now_ms)
        if not expired:
            return []
        removed = self._exclude_from_sync(expired)
        start = self.segments[len(removed)].base_offset
        self.segments = self.segments[len(removed) :]
        if start > self.start_offset:
            self.start_offset = start
            self.epochs.truncate_start(start)
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= self.start_offset]
        try:
            for segment in removed:
                segment.remove()
        except OSError as error:
            self.health.fail(f"cannot delete from {self.directory}", error)
        return [segment.base_offset for segment in removed]

    def expired_segments(self, now_ms: int) -> list[Segment]:
        """Return the segments that `retain` would delete now; if all are, create a new active one first."""
        if self.health.failure is not None:
            raise self.health.refusal()
        if self.cleaning is not None:
            return []
        try:
            count = self._count_expired(now_ms)
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)
        if count and count == len(self.segments):
            self.roll(now_ms)
        return self.segments[:count]

    def _exclude_from_sync(self, expired: list[Segment]) -> list[Segment]:
        """Return the `expired` segments that no running sync may use, and exclude them from later syncs."""
        if not self._sync_lock.acquire(blocking=False):
            return list(takewhile(lambda segment: segment not in self._unsynced, expired))
        try:
            self._unsynced = [segment for segment in self._unsynced if segment not in expired]
            return expired
        finally:
            self._sync_lock.release()

    def _count_expired(self, now_ms: int) -> int:
        """Return the number of segments, from the oldest on, that may be deleted."""
        segments, config = self.segments, self.config
        excess = self.size - config.retention_bytes if config.retention_bytes >= 0 else -1
        count = 0
        for at, segment in enumerate(segments):
            active = at == len(segments) - 1
            before_start = not active and segments[at + 1].base_offset <= self.start_offset
            too_old = (
                config.deletes
                and (segment.size > 0 or not active)
                and 0 <= config.retention_ms < now_ms - segment.largest_timestamp
            )
            too_many = config.deletes and not active and excess - segment.size >= 0
            if not (before_start or too_old or too_many) or (active and not too_old):
                break
            excess -= segment.size
            count += 1
        return count

    def truncate_to(self, offset: int) -> None:
        """Remove every record at or above `offset`; a batch that contains it is removed whole.

        Cancels a running cleaning. The caller first lowers the recovery point, see `LogDirectory.truncate`.
        """
        if offset >= self.end_offset:
            return
        with self._sync_lock:
            try:
                self.cleaning = None
                if self.has_unfinished_files:
                    remove_unfinished_files(self._disk, self.directory)
                truncate(self, max(offset, self.start_offset))
            except OSError as error:
                self.health.fail(f"cannot truncate {self.directory}", error)

    def _replay_producer(self, header: BatchHeader, view: memoryview) -> AbortedTransaction | None:
        """Update the producer state for a stored batch; return the transaction that it aborted, if any.

        The batch is one of a producer, or a transaction marker.
        """
        if not header.is_control:
            self.producers.note(header)
            return None
        try:
            entries = records(view, header)
            marker = read_end_marker(entries[0]) if entries else None
        except CodecError:
            return None
        return None if marker is None else self.producers.note_marker(header, marker)
