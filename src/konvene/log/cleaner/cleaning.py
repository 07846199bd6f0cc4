"""Runs one cleaning of one log: Kafka's `Cleaner.buildOffsetMap`, `groupSegmentsBySize` and `cleanSegments`.

A cleaning reads the dirty part to learn the last offset of each key, then reads the log from its first
segment on and writes the remaining records to new segments under `.cleaned` names. It neither opens the log
as a `PartitionLog` nor replaces its files, and uses the given clock only to measure durations. All other
input is in its `CleaningTask`, so it may run in another process.

`clean` is a generator that yields after each chunk of about `CHUNK_BYTES`. In memory it has the offset map,
one chunk (or one batch if that is larger), and the records kept of it. When it is closed or fails, it deletes
its unfinished files.

A wrong checksum ends it with `DamagedLog`. Kafka does not verify checksums here and copies the damage.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Generator

from konvene.codec.batches import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    check_sum,
    read_header,
)
from konvene.codec.errors import CodecError, Truncated
from konvene.log.cleaner.contract import (
    CLEANED,
    CleanedSegment,
    CleanerProgress,
    CleanerStats,
    CleaningTask,
    SourceSegment,
)
from konvene.log.cleaner.offset_map import OffsetMap
from konvene.log.cleaner.offset_map_builder import OffsetMapBuilder
from konvene.log.cleaner.record_filter import RecordFilter
from konvene.log.cleaner.transactions import CleanedTransactions
from konvene.log.disk.files import Disk, File
from konvene.log.errors import DamagedLog
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.producers import AbortedTransaction, write_aborted

CHUNK_BYTES = 256 * 1024
INT_MAX = 0x7FFF_FFFF

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
"""Suffixes of a new segment's files; the transaction index is written only if it has entries."""

Clock = Callable[[], float]

NO_OFFSET = 1 << 64
"""Greater than every value of an offset map."""
_SPECIAL = 0x70
"""Attribute bits of a transactional batch, a marker or a delete horizon."""
_COPIED = struct.Struct(">qi9xhi8xqq6xi")


def clean(
    disk: Disk, task: CleaningTask, write: bool = True, clock: Clock | None = None
) -> Generator[CleanerProgress | CleanedSegment, None, CleanerStats]:
    """Clean a log: yield the progress and each new segment, and return the statistics.

    With `write=False` nothing is written and no segment is yielded. `clock` measures the duration for the
    statistics. Raises `DamagedLog`, OSError, and FileNotFoundError if a segment was deleted meanwhile.
    """
    stats = CleanerStats()
    started = clock() if clock else 0.0
    offsets = OffsetMap(task.map_bytes)
    yield from _build_map(disk, task, offsets, stats)
    stats.end_offset = max(offsets.latest_offset + 1, task.first_dirty_offset)
    stats.index_s = clock() - started if clock else 0.0
    transactions = CleanedTransactions(task.aborted, task.sources[0].base_offset if task.sources else 0)
    chosen = RecordFilter(task, offsets, transactions, stats)
    last = [*offsets.sorted_values(), NO_OFFSET]
    for sources in group_by_size(task, stats.end_offset):
        writer = _SegmentWriter(disk, task, sources[0].base_offset) if write else None
        copier = _Copier(task, chosen, last, writer, stats)
        group = yield from _clean_group(disk, sources, copier, transactions, writer, stats)
        stats.segments.append(group)
        if write:
            yield group
    stats.buffer_utilization = offsets.utilization
    stats.elapsed_s = clock() - started if clock else 0.0
    return stats


def group_by_size(task: CleaningTask, end_offset: int) -> list[tuple[SourceSegment, ...]]:
    """Group the segments below `end_offset` so that each group fits into one segment.

    The files of a group stay within `segment_bytes` and `segment_index_bytes` even if nothing is removed, and
    its last offset fits into the 31-bit relative offsets of an index. The offset limit does not apply to an
    empty segment.
    """
    groups: list[list[SourceSegment]] = []
    size = index = times = 0
    for source in task.sources:
        if source.base_offset >= end_offset:
            break
        fits = (
            bool(groups)
            and size + source.size <= task.segment_bytes
            and index + source.index_bytes <= task.segment_index_bytes
            and times + source.time_index_bytes <= task.segment_index_bytes
            and (not source.size or source.next_offset - 1 - groups[-1][0].base_offset <= INT_MAX)
        )
        if fits:
            groups[-1].append(source)
        else:
            groups.append([source])
            size = index = times = 0
        size += source.size
        index += source.index_bytes
        times += source.time_index_bytes
    return [tuple(group) for group in groups]


# offset map -----------------------------------------------------------------------------------


def _build_map(
    disk: Disk, task: CleaningTask, offsets: OffsetMap, stats: CleanerStats
) -> Generator[CleanerProgress | CleanedSegment, None, None]:
    start, end = task.first_dirty_offset, task.first_uncleanable_offset
    builder = OffsetMapBuilder(task, offsets, stats)
    if start >= end:
        return
    for place, source in enumerate(task.sources):
        following = task.sources[place + 1].base_offset if place + 1 < len(task.sources) else end
        if source.base_offset >= end:
            return
        if following <= start:
            continue
        position = _position_before(disk, source, start)
        for used in _read_chunks(disk, source, position, builder):
            stats.map_bytes_read += used
            yield CleanerProgress(used, 0)
        if builder.full:
            return
        offsets.latest_offset = min(following, end) - 1


def _position_before(disk: Disk, source: SourceSegment, offset: int) -> int:
    """Return the position in the segment's file from which to read to find the batch of `offset`.

    The position comes from the offset index and may be that of an earlier batch; 0 without a valid index.
    """
    if offset <= source.base_offset:
        return 0
    try:
        data = disk.read(source.path.removesuffix(".log") + ".index")
        return OffsetIndex.load(source.base_offset, data, source.size).lookup(offset)
    except (FileNotFoundError, BadIndex):
        return 0


# reading --------------------------------------------------------------------------------------


def _read_chunks(
    disk: Disk, source: SourceSegment, position: int, taker: OffsetMapBuilder | _Copier
) -> Generator[int, None, None]:
    """Read a segment from `position` on and pass its batches to `taker`, up to its end or until `taker.done`.

    After each chunk, yields how many of its bytes `taker` has processed.
    """
    file = disk.open(source.path)
    try:
        want = CHUNK_BYTES
        while position < source.size and not taker.done:
            data = file.pread(min(want, source.size - position), position)
            taker.at = 0
            try:
                taker.take(data)
            except IndexError:
                raise DamagedLog(source.path, position + taker.at, "the records of a batch are cut") from None
            except CodecError as error:
                raise DamagedLog(source.path, position + taker.at, str(error)) from None
            if taker.at:
                position += taker.at
                want = CHUNK_BYTES
                yield taker.at
            elif not taker.done:
                want = _size_of_first(source, data, position)
    finally:
        file.close()


def _size_of_first(source: SourceSegment, data: bytes, position: int) -> int:
    """Return the size of the batch at `position`; `data` has its first bytes.

    Raises `DamagedLog` if the file ends inside the batch.
    """
    try:
        size = read_header(data).size
    except Truncated:
        size = 0
    if size <= len(data) or size > source.size - position:
        raise DamagedLog(source.path, position, "the file ends inside a batch")
    return size


# writing --------------------------------------------------------------------------------------


def _clean_group(
    disk: Disk,
    sources: tuple[SourceSegment, ...],
    copier: _Copier,
    transactions: CleanedTransactions,
    writer: _SegmentWriter | None,
    stats: CleanerStats,
) -> Generator[CleanerProgress | CleanedSegment, None, CleanedSegment]:
    try:
        if writer is not None:
            writer.create()
        for source in sources:
            for used in _read_chunks(disk, source, 0, copier):
                stats.bytes_read += used
                yield CleanerProgress(used, copier.write_out())
        kept = transactions.pop_kept()
        modified_ms = sources[-1].modified_ms
        if writer is not None:
            writer.finish(kept, modified_ms)
    except (Exception, GeneratorExit):
        if writer is not None:
            writer.discard()
        raise
    replaced = tuple(source.base_offset for source in sources)
    return CleanedSegment(replaced[0], sources[-1].next_offset, replaced, copier.size, modified_ms)


class _Copier:
    """The second pass of a cleaning: receives the log's batches and writes what remains to a new segment.

    Adjacent unchanged batches are copied as one slice. For an ordinary batch (no marker, transaction or
    delete horizon) in the dirty part, the sorted values of the offset map show which of its records remain.
    If none does, or all do and none is a tombstone, its records are not read again.
    """

    __slots__ = (
        "_chosen",
        "_data",
        "_last",
        "_latest",
        "_next",
        "_parts",
        "_run",
        "_run_end",
        "_stats",
        "_task",
        "_writer",
        "at",
        "done",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        task: CleaningTask,
        chosen: RecordFilter,
        last: list[int],
        writer: _SegmentWriter | None,
        stats: CleanerStats,
    ) -> None:
        """`chosen` filters the batches whose records must be read; without a `writer` nothing is written.
        `last`: `OffsetMap.sorted_values`, followed by `NO_OFFSET`, which ends every search."""
        self._task = task
        self._chosen = chosen
        self._last = last
        self._latest = stats.end_offset - 1
        self._next = 0
        self._writer = writer
        self._stats = stats
        self._data = b""
        self._run = self._run_end = 0
        self._parts: list[bytes | memoryview] = []
        self.at = 0
        self.done = False
        self.size = 0

    def take(self, data: bytes) -> None:
        """Process the whole batches of `data` from `self.at` on; set `self.at` to the end of the last one."""
        self._data = data
        self._run = self._run_end = 0
        end, at, read, written = len(data), self.at, 0, 0
        dirty, latest, task = self._task.first_dirty_offset, self._latest, self._task
        special, before_watermark = task.last_records, task.high_watermark - 1
        last, place = self._last, self._next
        while at + HEADER_SIZE <= end:
            self.at = at
            base, length, attributes, delta, newest, producer, count = _COPIED.unpack_from(data, at)
            after = at + PREFIX_SIZE + length
            if length < HEADER_SIZE - PREFIX_SIZE:
                read_header(data, at)
            if after > end:
                break
            offset = base + delta
            whole = False
            if (
                base >= dirty
                and offset <= latest
                and not attributes & _SPECIAL
                and offset != before_watermark
                and producer not in special
            ):
                while last[place] >> 1 < base:
                    place += 1
                first, tombstones, limit = place, 0, offset << 1 | 1
                while (found := last[place]) <= limit:
                    tombstones |= found
                    place += 1
                if place == first:
                    read += count
                    at = after
                    continue
                whole = place - first == count and not tombstones & 1
            if whole:
                read += count
                written += count
                if self._run_end != at:
                    self._end_run(at)
                self._run_end = after
                self._note(offset, newest, after - at)
            else:
                self._take_batch(data, at, after)
            at = after
        self.at = at
        self._next = place
        self._stats.messages_read += read
        self._stats.messages_written += written

    def _take_batch(self, data: bytes, at: int, after: int) -> None:
        """Filter the batch in `data[at:after]`, whose records must be read, and keep what remains of it."""
        header = read_header(data, at)
        if not self._task.first_dirty_offset <= header.base_offset <= header.last_offset <= self._latest:
            check_sum(memoryview(data)[at:after], header)
        left = self._chosen.filter_batch(data, at, header)
        if left is None:
            if self._run_end != at:
                self._end_run(at)
            self._run_end = after
            self._note(header.last_offset, header.max_timestamp, header.size)
        elif left:
            self._end_run(after)
            self._parts.append(left)
            self._note(header.last_offset, read_header(left).max_timestamp, len(left))

    def write_out(self) -> int:
        """Write the batches kept since the last call; return the number of bytes."""
        self._end_run(0)
        self._data = b""
        parts, self._parts = self._parts, []
        if not parts:
            return 0
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        self._stats.bytes_written += len(piece)
        if self._writer is not None:
            self._writer.log.append(piece)
        return len(piece)

    def _end_run(self, at: int) -> None:
        if self._run_end > self._run:
            self._parts.append(memoryview(self._data)[self._run : self._run_end])
        self._run = self._run_end = at

    def _note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        self.size += size
        if self._writer is not None:
            self._writer.note(last_offset, max_timestamp, size)


class _SegmentWriter:
    """A writer of a new segment's files, under `.cleaned` names."""

    __slots__ = (
        "_created",
        "_disk",
        "_interval",
        "_newest",
        "_offsets",
        "_prefix",
        "_size",
        "_times",
        "_unindexed",
        "log",
    )

    def __init__(self, disk: Disk, task: CleaningTask, base_offset: int) -> None:
        self._disk = disk
        self._prefix = f"{task.directory}/{base_offset:020d}"
        self._interval = task.index_interval_bytes
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._newest = (NO_TIMESTAMP, base_offset)
        self._size = self._unindexed = 0
        self._created: list[str] = []
        self.log: File

    def create(self) -> None:
        """Delete leftovers of an interrupted cleaning and create an empty `.log.cleaned` file."""
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._prefix + suffix + CLEANED)
        self.log = self._open(".log")

    def note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Update the indexes for a batch of `size` bytes that is appended, as `Segment.note` does."""
        if max_timestamp > self._newest[0]:
            self._newest = max_timestamp, last_offset
        if self._unindexed > self._interval:
            self._offsets.append(last_offset, self._size)
            self._times.append(*self._newest)
            self._unindexed = 0
        self._size += size
        self._unindexed += size

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Write the indexes, make all files durable and set their modification time to `modified_ms`.

        `aborted` are the entries of the new segment's transaction index.
        """
        self._times.append(*self._newest)
        parts = [(".index", bytes(self._offsets.data)), (".timeindex", bytes(self._times.data))]
        if aborted:
            parts.append((".txnindex", write_aborted(aborted)))
        files = [self.log]
        for suffix, data in parts:
            file = self._open(suffix)
            files.append(file)
            if data:
                file.append(data)
        for file in files:
            file.sync()
            file.close()
            self._disk.set_modified_ms(file.path, modified_ms)
        self._created = []

    def discard(self) -> None:
        """Delete the files created so far; the next start deletes those that cannot be deleted now."""
        for path in self._created:
            with contextlib.suppress(OSError):
                self._disk.remove(path)

    def _open(self, suffix: str) -> File:
        path = self._prefix + suffix + CLEANED
        file = self._disk.open(path, create=True)
        self._created.append(path)
        return file
