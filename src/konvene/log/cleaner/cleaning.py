"""One cleaning of one log: Kafka's `Cleaner.buildOffsetMap`, `groupSegmentsBySize` and `cleanSegments`.

It reads the dirty part to know the last offset of each key, then the log from its first segment on, and
writes what stays into new segments under `.cleaned` names. It opens no log, replaces nothing and knows no
clock, except the one that it is given to say how long it took; everything else is in its `Task`, so it may
run in another process.

It is a generator, and gives way after each piece of about `CHUNK_BYTES`. What it holds is the map, such a
piece and what stays of it, or one batch where that is larger. Closed or failing, it removes the files that
it has not finished.

A checksum that does not hold ends it with `DamagedLog`: Kafka does not look, and copies the damage.
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
from konvene.log.cleaner.contract import CLEANED, Group, Progress, Source, Stats, Task
from konvene.log.cleaner.offset_map import OffsetMap
from konvene.log.cleaner.offset_map_builder import MapBuilder
from konvene.log.cleaner.record_filter import Filter
from konvene.log.cleaner.transactions import Transactions
from konvene.log.disk.files import Disk, File
from konvene.log.errors import DamagedLog
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.producers import AbortedTransaction, write_aborted

CHUNK_BYTES = 256 * 1024
INT_MAX = 0x7FFF_FFFF

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
"""Of the files of a new segment; the last is there only if it has something in it."""

Clock = Callable[[], float]

NO_OFFSET = 1 << 64
"""Behind all that a map holds."""
_SPECIAL = 0x70
"""Of a transaction, a marker, or with a delete horizon."""
_COPIED = struct.Struct(">qi9xhi8xqq6xi")


def clean(
    disk: Disk, task: Task, write: bool = True, clock: Clock | None = None
) -> Generator[Progress | Group, None, Stats]:
    """Clean a log; `write=False` counts what it would do.

    Raises `DamagedLog`, OSError, and FileNotFoundError where a segment has gone meanwhile.
    """
    stats = Stats()
    started = clock() if clock else 0.0
    offsets = OffsetMap(task.map_bytes)
    yield from _build_map(disk, task, offsets, stats)
    stats.end_offset = max(offsets.latest_offset + 1, task.first_dirty_offset)
    stats.index_s = clock() - started if clock else 0.0
    transactions = Transactions(task.aborted, task.sources[0].base_offset if task.sources else 0)
    chosen = Filter(task, offsets, transactions, stats)
    last = [*offsets.sorted_last(), NO_OFFSET]
    for sources in group_by_size(task, stats.end_offset):
        draft = _Draft(disk, task, sources[0].base_offset) if write else None
        copier = _Copier(task, chosen, last, draft, stats)
        group = yield from _clean_group(disk, sources, copier, transactions, draft, stats)
        stats.segments.append(group)
        if write:
            yield group
    stats.buffer_utilization = offsets.utilization
    stats.elapsed_s = clock() - started if clock else 0.0
    return stats


def group_by_size(task: Task, end_offset: int) -> list[tuple[Source, ...]]:
    """The segments that begin before `end_offset`, put together as far as one segment may hold them.

    What is left of them is at most as much as they hold now, in the log and in both indexes; and the last
    offset is told in an index as its distance from the first, in 31 bits. An empty segment may be any
    distance away.
    """
    groups: list[list[Source]] = []
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


# the map --------------------------------------------------------------------------------------


def _build_map(
    disk: Disk, task: Task, offsets: OffsetMap, stats: Stats
) -> Generator[Progress | Group, None, None]:
    start, end = task.first_dirty_offset, task.first_uncleanable_offset
    builder = MapBuilder(task, offsets, stats)
    if start >= end:
        return
    for place, source in enumerate(task.sources):
        following = task.sources[place + 1].base_offset if place + 1 < len(task.sources) else end
        if source.base_offset >= end:
            return
        if following <= start:
            continue
        position = _position_before(disk, source, start)
        for used in _pieces(disk, source, position, builder):
            stats.map_bytes_read += used
            yield Progress(used, 0)
        if builder.full:
            return
        offsets.latest_offset = min(following, end) - 1


def _position_before(disk: Disk, source: Source, offset: int) -> int:
    """Where reading may begin to find `offset`, as the index says; it is a hint, and 0 is always right."""
    if offset <= source.base_offset:
        return 0
    try:
        data = disk.read(source.path.removesuffix(".log") + ".index")
        return OffsetIndex.load(source.base_offset, data, source.size).lookup(offset)
    except (FileNotFoundError, BadIndex):
        return 0


# reading --------------------------------------------------------------------------------------


def _pieces(
    disk: Disk, source: Source, position: int, taker: MapBuilder | _Copier
) -> Generator[int, None, None]:
    """Read a segment and hand its batches on, until there are no more or the taker is `done`.

    Yields after each piece how many bytes of it were taken.
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


def _size_of_first(source: Source, data: bytes, position: int) -> int:
    """The size of a batch of which only the beginning was read; `DamagedLog` if the file ends in it."""
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
    sources: tuple[Source, ...],
    copier: _Copier,
    transactions: Transactions,
    draft: _Draft | None,
    stats: Stats,
) -> Generator[Progress | Group, None, Group]:
    try:
        if draft is not None:
            draft.create()
        for source in sources:
            for used in _pieces(disk, source, 0, copier):
                stats.bytes_read += used
                yield Progress(used, copier.write_out())
        kept = transactions.take_kept()
        modified_ms = sources[-1].modified_ms
        if draft is not None:
            draft.finish(kept, modified_ms)
    except (Exception, GeneratorExit):
        if draft is not None:
            draft.discard()
        raise
    replaced = tuple(source.base_offset for source in sources)
    return Group(replaced[0], sources[-1].next_offset, replaced, copier.size, modified_ms)


class _Copier:
    """Carries what stays from one segment to the next; neighbours that stay as they are go as one piece.

    Of a plain batch in the part that the map covers, the sorted offsets of the map say what stays. Where
    that is nothing, or all of it and no tombstone, its records are not looked at again.
    """

    __slots__ = (
        "_chosen", "_data", "_draft", "_last", "_latest", "_next", "_parts", "_run", "_run_end", "_stats",
        "_task", "at", "done", "size",
    )  # fmt: skip

    def __init__(
        self, task: Task, chosen: Filter, last: list[int], draft: _Draft | None, stats: Stats
    ) -> None:
        """`last`: what the map holds, sorted, and then one more that no offset reaches."""
        self._task = task
        self._chosen = chosen
        self._last = last
        self._latest = stats.end_offset - 1
        self._next = 0
        self._draft = draft
        self._stats = stats
        self._data = b""
        self._run = self._run_end = 0
        self._parts: list[bytes | memoryview] = []
        self.at = 0
        self.done = False
        self.size = 0

    def take(self, data: bytes) -> None:
        """All whole batches of `data`; `at` is behind the last one."""
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
        """A batch of which something has to be asked."""
        header = read_header(data, at)
        if not self._task.first_dirty_offset <= header.base_offset <= header.last_offset <= self._latest:
            check_sum(memoryview(data)[at:after], header)
        left = self._chosen.what_stays(data, at, header)
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
        """Write what was kept since the last time; how many bytes."""
        self._end_run(0)
        self._data = b""
        parts, self._parts = self._parts, []
        if not parts:
            return 0
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        self._stats.bytes_written += len(piece)
        if self._draft is not None:
            self._draft.log.append(piece)
        return len(piece)

    def _end_run(self, at: int) -> None:
        if self._run_end > self._run:
            self._parts.append(memoryview(self._data)[self._run : self._run_end])
        self._run = self._run_end = at

    def _note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        self.size += size
        if self._draft is not None:
            self._draft.note(last_offset, max_timestamp, size)


class _Draft:
    """The files of a new segment while they are written."""

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

    def __init__(self, disk: Disk, task: Task, base_offset: int) -> None:
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
        """An empty file; what a cleaning that was broken off has left goes."""
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._prefix + suffix + CLEANED)
        self.log = self._open(".log")

    def note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """A batch of `size` bytes is to stand at the end: as `Segment.note`."""
        if max_timestamp > self._newest[0]:
            self._newest = max_timestamp, last_offset
        if self._unindexed > self._interval:
            self._offsets.append(last_offset, self._size)
            self._times.append(*self._newest)
            self._unindexed = 0
        self._size += size
        self._unindexed += size

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Make it whole and durable, as old as the last one of those that it takes the place of."""
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
        """Remove what has been made, as far as the disk lets us: a start removes the rest."""
        for path in self._created:
            with contextlib.suppress(OSError):
                self._disk.remove(path)

    def _open(self, suffix: str) -> File:
        path = self._prefix + suffix + CLEANED
        file = self._disk.open(path, create=True)
        self._created.append(path)
        return file
