"""The log of one partition: an offset is given to every record, and what was given stays.

Decides what may be appended, where it stands, from where to where may be read, and what may
be deleted. It knows nothing of groups, replicas or who waits: the caller reads `end_offset`
(written), `synced_offset` (durable) and answers accordingly.

One thread appends, reads, deletes. `sync()` may be called from another one at the same time:
it takes the end offset first, then makes everything before it durable in the order data,
indexes, epochs, and only then moves `synced_offset`.

After a failed write or sync nothing here is tried again: the shared `Health` remembers, and
every later call raises `LogOffline` until the process starts anew and recovers. Half a
batch at the end of a file is then a torn tail like any other.

Long, because one log is one story: append, sync, read and delete share the same few fields,
and what each leaves true for the others is easiest to check on one page.

Segments are the unit of deletion. Reads give whole batches of one segment; a batch that
begins before the asked offset is given whole, as Kafka does.
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
from konvene.log.cleaner.recovery import remove_drafts
from konvene.log.config import LogConfig
from konvene.log.disk.files import Disk, replace
from konvene.log.epochs import FILE_NAME as EPOCHS_NAME
from konvene.log.epochs import LeaderEpochs
from konvene.log.errors import (
    InvalidRecord,
    LogError,
    LogGone,
    LogOffline,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from konvene.log.producers import AbortedTransaction, Origin, Producers
from konvene.log.segment import Segment
from konvene.log.truncating import truncate
from konvene.log.validation import too_large, validate, validate_batch

if TYPE_CHECKING:
    from konvene.log.cleaner.contract import Task

_INDEX_ENTRY_BYTES = 8


class Health:
    """Shared by all logs of a directory: whether it may still be used."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: LogError | None = None

    def __repr__(self) -> str:
        return "Health(good)" if self.failure is None else f"Health({self.failure})"

    def fail(self, what: str, error: OSError) -> NoReturn:
        """Take the directory out of use: the first failure stays the reason."""
        if self.failure is None:
            self.failure = LogOffline(f"{what}: {error}")
        raise self.refusal() from error

    def refusal(self) -> LogError:
        """The failure, anew for each caller: an exception raised twice would collect their tracebacks."""
        failure = self.failure
        return LogOffline("not in use") if failure is None else type(failure)(*failure.args)


class Appended(NamedTuple):
    """Where an append stands. A duplicate stands where its first copy does and wrote nothing."""

    base_offset: int
    last_offset: int
    size: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


class PartitionLog:
    """See the top of this file. Make one with `konvene.log.opening.open_log`."""

    __slots__ = (
        "_active",
        "_disk",
        "_made",
        "_sync_lock",
        "_unsynced",
        "aborted",
        "aside",
        "cleaning",
        "config",
        "directory",
        "drafts",
        "end_offset",
        "epochs",
        "health",
        "producers",
        "segments",
        "snapshot_offset",
        "start_offset",
        "synced_offset",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, health: Health) -> None:
        """Only the fields; `konvene.log.opening` fills them from what it finds."""
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
        #: Where the newest snapshot of the producers stands that the last close left.
        self.snapshot_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        #: The cleaning of this log that is going on: `retain` waits, cutting the log ends it.
        self.cleaning: Task | None = None
        #: Whether files of a cleaning may lie beside the log: one was begun since the last look.
        self.drafts = False
        #: Segments that a cleaning has replaced, and since when: who reads them may go on for a while.
        self.aside: dict[Segment, int | None] = {}
        self._active: Segment
        #: Segments that are finished and whose data or indexes are not yet durable.
        self._unsynced: list[Segment] = []
        #: Whether a file was made whose directory entry is not yet durable.
        self._made = False
        self._sync_lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.directory}: {self.start_offset}..{self.end_offset}, "
            f"synced to {self.synced_offset}, {len(self.segments)} segments)"
        )

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def active_segment(self) -> Segment:
        return self._active

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
        """Append what a producer sent: one whole batch of a client, one or more of a coordinator.

        What can be written to is stamped in place. Raises a `Refused` (nothing written), a `CodecError` where
        the bytes are damaged, `LogOffline` where the disk fails. A duplicate is answered with
        the first copy's offsets.
        """
        if self.health.failure is not None:
            raise self.health.refusal()
        if not data:
            raise InvalidRecord("an append without a batch")
        first = read_header(data)
        sizes = [first.size] if first.size == len(data) else [header.size for header, _ in batches(data)]
        if origin is Origin.CLIENT and len(sizes) != 1:
            raise InvalidRecord(f"{len(sizes)} batches in one append of a client")
        data, headers = self._admit(data, first, sizes, now_ms, origin, validate_records)
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
        """Append a coordinator's records as one batch, all of time `now_ms`.

        `MessageTooLarge` (nothing written) if they do not fit one batch.
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
        """Append the end of a transaction. `InvalidProducerEpoch`, `TransactionCoordinatorFenced`."""
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

    def _admit(
        self,
        data: Buffer,
        first: BatchHeader,
        sizes: list[int],
        now_ms: int,
        origin: Origin,
        validate_records: bool,
    ) -> tuple[bytearray | memoryview, list[tuple[BatchHeader, int]]]:
        """Refuse what Kafka refuses. What is to be written, and of each batch its newest timestamp."""
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
        """The bytes at the end, then all that is derived from them. `marker`: what they say, if known."""
        size = len(data)
        segment = self._active
        last = headers[-1]
        if segment.size + size > self.config.segment_bytes or (
            segment.size and self._is_due(segment, last, now_ms)
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

    def _is_due(self, segment: Segment, last: BatchHeader, now_ms: int) -> bool:
        """Kafka's rule of time: a segment grows for `segment.ms` of its records' own time."""
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
        gone = self.producers.note_marker(header, marker)
        if gone is not None:
            segment.aborted.append(gone)
            self.aborted.append(gone)

    def roll(self, now_ms: int) -> Segment:
        """Finish the active segment and begin the next one; its indexes are written by the next `sync`.

        Its data becomes durable here, before the new segment can hold anything: else a power cut could
        keep the new records and lose the old ones, a gap that recovery must refuse.
        """
        old = self._active
        try:
            _ = old.offsets  # Read, or made again, while nobody else looks at it.
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
        self._made = True
        self._unsynced.append(old)
        self.segments.append(new)
        # Last: `sync` looks at the active segment first and at the finished ones after it.
        self._active = new
        return new

    # syncing ---------------------------------------------------------------------------------

    def sync(self) -> int:
        """Make everything written before this call durable; the offset up to which it now is.

        The one call that may come from another thread. Raises `LogOffline`, and then for ever.
        """
        with self._sync_lock:
            if self.health.failure is not None:
                raise self.health.refusal()
            goal = self.end_offset
            active = self._active
            finished = list(self._unsynced)
            try:
                if goal > self.synced_offset or finished or self._made:
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
        if self._made:
            self._made = False
            self._disk.sync_directory(self.directory)
        for segment in finished:
            self._unsynced.remove(segment)

    def sync_finished(self) -> int:
        """Make all but the active segment durable, with their indexes; the offset up to which it now is.

        For logs that nobody syncs: without it a crash would have all of them read again. From any thread.
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
        """Sync, write down what the next opening wants to know, and give the files back.

        Not `clean`: only give the files back, as after a failure.
        """
        from konvene.log import closing  # it reads what only this file sets

        if clean and self.health.failure is None:
            if not closing.is_written_down(self):
                self.sync()
                closing.write_down(self)
            closing.tidy(self)
        for segment in (*self.segments, *self.aside):
            segment.file.close()

    def abandon(self) -> None:
        """The partition is being deleted: whoever still holds this log is told `LogGone`."""
        self.close(clean=False)
        self.health = Health()
        self.health.failure = LogGone(f"{self.directory} has been deleted")

    # reading ---------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upto: int | None = None, min_one: bool = True) -> bytes:
        """Whole batches from the one that contains `offset`, all of them ending before `upto`.

        At most `max_bytes`, but with `min_one` at least one batch. Empty at the end.
        `OffsetOutOfRange` before the start or behind the end.
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
        """Each batch from the one that contains `offset` (default: start) up to `upto` (default: end).

        For loaders: read a megabyte at a time, checksums not looked at. A view is good until the next step.
        Where a cleaning has taken a segment away meanwhile, it goes on in the one that has its place.
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
        """Up to where readers of committed data may read."""
        return self.producers.last_stable_offset(high_watermark)

    def aborted_transactions(self, offset: int, upto: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in `offset .. upto`, for readers of committed data."""
        return [gone for gone in self.aborted if gone.last_offset >= offset and gone.first_offset < upto]

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose time is at least `timestamp`; None if there is none."""
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

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest time, the first of those that share it; None in an empty log."""
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
        """Where an epoch ended: `(epoch, offset)`, (-1, -1) if unknown (OffsetForLeaderEpoch)."""
        return self.epochs.end_of(epoch, self.end_offset)

    def _segments_from(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those behind it."""
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
        """Move the log's start up to `offset` (-1: to the end); the new start.

        Nothing before it can be read again; its segments go with the next `retain`. The start
        is remembered by the directory's checkpoint.
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
        """Delete segments that are too old, too many or before the start; their base offsets.

        Always from the oldest on, none that is being synced, and none while the log is being cleaned. The
        active segment goes only where all its records are too old, and then a new one is begun first, as in
        Kafka.
        """
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        doomed = self.doomed(now_ms)
        if not doomed:
            return []
        gone = self._let_go(doomed)
        start = self.segments[len(gone)].base_offset
        self.segments = self.segments[len(gone) :]
        if start > self.start_offset:
            self.start_offset = start
            self.epochs.truncate_start(start)
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= self.start_offset]
        try:
            for segment in gone:
                segment.remove()
        except OSError as error:
            self.health.fail(f"cannot delete from {self.directory}", error)
        return [segment.base_offset for segment in gone]

    def doomed(self, now_ms: int) -> list[Segment]:
        """What `retain` would delete now. Where the active segment is due, another one is begun here."""
        if self.health.failure is not None:
            raise self.health.refusal()
        if self.cleaning is not None:
            return []
        try:
            count = self._expired(now_ms)
        except OSError as error:
            self.health.fail(f"cannot read {self.directory}", error)
        if count and count == len(self.segments):
            self.roll(now_ms)
        return self.segments[:count]

    def _let_go(self, doomed: list[Segment]) -> list[Segment]:
        """Those that no sync will touch any more: nobody needs to make durable what is deleted."""
        if not self._sync_lock.acquire(blocking=False):
            return list(takewhile(lambda segment: segment not in self._unsynced, doomed))
        try:
            self._unsynced = [segment for segment in self._unsynced if segment not in doomed]
            return doomed
        finally:
            self._sync_lock.release()

    def _expired(self, now_ms: int) -> int:
        """How many segments, from the oldest on, may go."""
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
        """Cut every record at or behind `offset` away (at a batch's border: the batch with it goes whole).

        A cleaning that runs is given up. The caller first lowers the directory's recovery point: see
        `LogDirectory.truncate`.
        """
        if offset >= self.end_offset:
            return
        with self._sync_lock:
            try:
                self.cleaning = None
                if self.drafts:
                    remove_drafts(self._disk, self.directory)
                truncate(self, max(offset, self.start_offset))
            except OSError as error:
                self.health.fail(f"cannot truncate {self.directory}", error)

    def _replay(self, header: BatchHeader, view: memoryview) -> AbortedTransaction | None:
        """Only the producers, as `_note_producer`; the aborted transaction is given back."""
        if not header.is_control:
            self.producers.note(header)
            return None
        try:
            entries = records(view, header)
            marker = read_end_marker(entries[0]) if entries else None
        except CodecError:
            return None
        return None if marker is None else self.producers.note_marker(header, marker)
