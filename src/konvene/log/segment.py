"""A segment of a log: a `.log` file with consecutive batches from a base offset on, and its indexes.

A segment finds and appends batches; `partition` decides what may be appended or read. The active segment's
indexes are in memory and are written when the segment is finished; those of an older segment are read on
first use. Positions are bytes from the start of the file and always point to the start of a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crc32c import crc32c

from konvene.codec.batches import HEADER_SIZE, NO_TIMESTAMP, PREFIX_SIZE, BatchHeader, read_header
from konvene.codec.compression import Buffer
from konvene.codec.errors import CodecError
from konvene.log.disk.files import Disk, File, replace
from konvene.log.errors import DamagedLog
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.producers import AbortedTransaction, read_aborted, write_aborted

if TYPE_CHECKING:
    from konvene.log.summary import SegmentSummary

#: Bytes read at once when searching for a batch, and when reading a log from end to end.
SEARCH_BYTES = 8 * 1024
CHUNK_BYTES = 1024 * 1024

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_NEEDED = 27


def segment_name(base_offset: int, suffix: str) -> str:
    """Return Kafka's file name: the base offset in 20 digits and a suffix."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """One segment of a log, with its file and indexes.

    `size` is the number of readable bytes, `next_offset` the offset after the last batch.
    """

    __slots__ = (
        "_crcs",
        "_disk",
        "_indexed_size",
        "_interval",
        "_offsets",
        "_prefix",
        "_suffix",
        "_times",
        "_unindexed",
        "aborted",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "size",
        "snapshot",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, interval: int, now_ms: int) -> None:
        self._disk = disk
        self._prefix = f"{directory}/{base_offset:020d}"
        #: Suffix of all file names once another segment has replaced this one.
        self._suffix = ""
        self._interval = interval
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.created_ms = now_ms
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.aborted: list[AbortedTransaction] = []
        #: Producer snapshot at `next_offset`, written together with the indexes.
        self.snapshot: bytes | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._unindexed = 0
        #: Checksums of both index files on disk; valid while `size` equals `_indexed_size`.
        self._crcs: tuple[int, int] | None = None
        self._indexed_size = -1
        self.file: File

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.next_offset}, {self.size} bytes)"

    @property
    def path(self) -> str:
        return f"{self._prefix}.log{self._suffix}"

    # making one ------------------------------------------------------------------------------

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, interval: int, now_ms: int) -> Segment:
        """Create an empty segment with a new file; `interval` is `index.interval.bytes`."""
        segment = cls(disk, directory, base_offset, interval, now_ms)
        segment.file = disk.open(segment.path, create=True)
        segment.reset_indexes()
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, interval: int) -> Segment:
        """Open the segment of an existing file without reading it; `interval` is `index.interval.bytes`."""
        segment = cls(disk, directory, base_offset, interval, 0)
        segment.file = disk.open(segment.path)
        segment.size = segment.file.size()
        segment.created_ms = disk.modified_ms(segment.path)
        return segment

    def restore(self, row: SegmentSummary) -> None:
        """Restore the state in `row`, of the last clean shutdown; the indexes are read on first use."""
        self.file = self._disk.open(self.path)
        self.next_offset, self.size = row.next_offset, row.size
        self.created_ms = row.changed_ns // 1_000_000
        self.first_timestamp = row.first_timestamp
        self.max_timestamp, self.max_timestamp_offset = row.max_timestamp, row.max_timestamp_offset
        self._unindexed = row.unindexed
        self._indexed_size = row.size
        self._crcs = None if row.index_crc < 0 else (row.index_crc, row.times_crc)

    def load_indexes(self) -> bool:
        """Read both index files. Return False if either is missing or does not belong to this segment."""
        try:
            offsets = self._disk.read(f"{self._prefix}.index{self._suffix}")
            times = self._disk.read(f"{self._prefix}.timeindex{self._suffix}")
            crcs = crc32c(offsets), crc32c(times)
            if self._crcs not in (None, crcs):
                return False
            self._offsets = OffsetIndex.load(self.base_offset, offsets, self.size)
            self._times = TimeIndex.load(self.base_offset, times)
        except (FileNotFoundError, BadIndex):
            return False
        if self._crcs is None:
            self._crcs, self._indexed_size = crcs, self.size
        if self._times.last[0] > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = self._times.last
        transactions = f"{self._prefix}.txnindex{self._suffix}"
        if self._disk.exists(transactions):
            try:
                self.aborted = read_aborted(self._disk.read(transactions))
            except CodecError:
                return False
        return True

    def reset_indexes(self) -> None:
        """Empty the indexes and counters, so that calls of `note` from the first batch on rebuild them."""
        self.forget_written()
        self._offsets = OffsetIndex(self.base_offset)
        self._times = TimeIndex(self.base_offset)
        self._unindexed = 0
        self.size = 0
        self.next_offset = self.base_offset
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.aborted = []

    @property
    def has_read_indexes(self) -> bool:
        """True if the indexes are in memory."""
        return self._offsets is not None

    @property
    def has_indexes(self) -> bool:
        """True if the index files on disk cover the whole segment."""
        return self._indexed_size == self.size

    @property
    def index_crcs(self) -> tuple[int, int]:
        """Checksums of both index files; (-1, -1) if they have not been read."""
        return self._crcs or (-1, -1)

    def forget_written(self) -> None:
        """Treat the index files on disk as outdated, so that `write_indexes` writes them again."""
        self._crcs, self._indexed_size = None, -1

    @property
    def unindexed(self) -> int:
        """Number of bytes since the batch of the last index entry."""
        return self._unindexed

    def write_indexes(self, *, durably: bool = True) -> None:
        """Write both indexes, the aborted transactions and the producer snapshot.

        With `durably=False` they are not synced, and unchanged files are not written again.
        """
        times = self.times
        times.append(self.max_timestamp, self.max_timestamp_offset)
        size = self.size
        offset_index, time_index = bytes(self.offsets.data), bytes(times.data)
        files = [(self._prefix + ".index", offset_index), (self._prefix + ".timeindex", time_index)]
        if self.aborted:
            files.append((self._prefix + ".txnindex", write_aborted(self.aborted)))
        if self.snapshot is not None:
            snapshot = segment_name(self.next_offset, ".snapshot")
            files.append((f"{self._prefix[:-21]}/{snapshot}", self.snapshot))
        for path, data in files:
            if durably:
                replace(self._disk, path, data)
            else:
                _put(self._disk, path, data)
        self.snapshot = None
        self._crcs, self._indexed_size = (crc32c(offset_index), crc32c(time_index)), size

    def index_bytes(self) -> tuple[int, int]:
        """Return the sizes (bytes) of the offset index and the time index, without reading existing files."""
        found = []
        for held, suffix in ((self._offsets, ".index"), (self._times, ".timeindex")):
            path = f"{self._prefix}{suffix}{self._suffix}"
            if held is None and not self._disk.exists(path):
                self.rebuild()
                return len(self.offsets.data), len(self.times.data)
            found.append(self._disk.size(path) if held is None else len(held.data))
        return found[0], found[1]

    def remove(self) -> None:
        """Delete all files of this segment, the log last: an index without a log is harmless."""
        self.file.close()
        for ending in (".index", ".timeindex", ".txnindex", ".snapshot", ".log"):
            path = f"{self._prefix}{ending}{self._suffix}"
            if self._disk.exists(path):
                self._disk.remove(path)

    def rename_with_suffix(self, suffix: str, *, with_snapshot: bool) -> None:
        """Append `suffix` to the names of all files, because other segments replace this one.

        Open readers of this segment continue. With `with_snapshot`, the producer snapshot at the base offset
        is renamed too, as no segment begins there any more.
        """
        endings = [".log", ".index", ".timeindex", ".txnindex"]
        for ending in [*endings, ".snapshot"] if with_snapshot else endings:
            path = self._prefix + ending
            if self._disk.exists(path):
                self._disk.rename(path, path + suffix)
        self._suffix = suffix
        self.file.path = self.path

    @property
    def offsets(self) -> OffsetIndex:
        if self._offsets is None and not self.load_indexes():
            self.rebuild()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self._times is None and not self.load_indexes():
            self.rebuild()
        assert self._times is not None
        return self._times

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp in the segment; without timestamps, the file's modification time."""
        if self._times is None and self.max_timestamp < 0:
            _ = self.times
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def rebuild(self) -> None:
        """Rebuild the indexes from the batch headers."""
        size, aborted = self.size, self.aborted
        latest = self.max_timestamp, self.max_timestamp_offset
        self.reset_indexes()
        self.aborted = aborted
        for header, _ in self.scan(0, size):
            self.note(header.last_offset, header.max_timestamp, header.size)
        if latest[0] > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = latest

    # growing ---------------------------------------------------------------------------------

    def append(self, data: Buffer) -> None:
        """Append bytes to the file. They become readable when `note` is called for each batch."""
        self.file.append(data)

    def note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Make the next `size` bytes readable, which are one batch, and update the indexes for it."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
            if self.first_timestamp < 0:
                self.first_timestamp = max_timestamp
        if self._unindexed > self._interval:
            self.offsets.append(last_offset, self.size)
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
            self._unindexed = 0
        self.size += size
        self._unindexed += size
        self.next_offset = last_offset + 1

    def truncate(self, position: int, next_offset: int) -> None:
        """Truncate the file and the indexes at `position`; `next_offset` is the segment's new end."""
        self.offsets.truncate(position)
        self.times.truncate(next_offset)
        self.file.truncate(position)
        self.size = position
        self.next_offset = next_offset
        start = self.offsets.batch_before(position)
        self.max_timestamp, self.max_timestamp_offset = self.times.last
        for header, _ in self.scan(start, position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self._unindexed = position - start
        if not position:
            self.first_timestamp = NO_TIMESTAMP
        self.aborted = [entry for entry in self.aborted if entry.last_offset < next_offset]
        self.forget_written()

    # finding ---------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return `(position, size)` of the first batch that ends at or after `offset`; None if none does.

        Raises `DamagedLog` if a batch on the way has an impossible length."""
        position = self.offsets.lookup(offset)
        while position < self.size:
            chunk = self.file.pread(min(SEARCH_BYTES, self.size - position), position)
            at, last = 0, len(chunk) - _NEEDED
            while at <= last:
                base, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at)
                if length < HEADER_SIZE - PREFIX_SIZE:
                    raise DamagedLog(self.path, position + at, f"a batch of {length} bytes")
                if base + _LAST_DELTA.unpack_from(chunk, at + 23)[0] >= offset:
                    size = length + PREFIX_SIZE
                    if position + at + size > self.size:
                        raise DamagedLog(self.path, position + at, "the file ends inside a batch")
                    return position + at, size
                at += length + PREFIX_SIZE
            if not at:
                raise DamagedLog(self.path, position, "the file ends inside a batch")
            position += at
            if position > self.size:
                begin = position - length - PREFIX_SIZE
                raise DamagedLog(self.path, begin, "the file ends inside a batch")
        return None

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at `position`, as `locate` returns it."""
        return read_header(self.file.pread(HEADER_SIZE, position))

    def read_whole(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes from position `start`, and return the whole batches in them.

        The file must have that many bytes.
        """
        border = max(start, self.offsets.batch_before(start + size))
        tail = self.file.pread(start + size - border, border)
        at, end = 0, len(tail)
        while at + PREFIX_SIZE <= end:
            after = at + _OFFSET_AND_LENGTH.unpack_from(tail, at)[1] + PREFIX_SIZE
            if not at < after <= end:
                break
            at = after
        return tail[:at] if border == start else self.file.pread(border + at - start, start)

    def scan(self, position: int, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each batch from `position` to `end` (default: all). Checksums are not verified."""
        stop = self.size if end is None else end
        while position < stop:
            view = memoryview(self.file.pread(min(CHUNK_BYTES, stop - position), position))
            at = 0
            while at < len(view):
                try:
                    header = read_header(view, at)
                except CodecError as error:
                    if len(view) - at < HEADER_SIZE and at and position + at < stop:
                        break
                    raise DamagedLog(self.path, position + at, str(error)) from None
                if at + header.size > len(view):
                    break
                yield header, view[at : at + header.size]
                at += header.size
            if not at:
                # One batch larger than a chunk, or a cut one.
                header = read_header(view)
                if position + header.size > stop:
                    raise DamagedLog(self.path, position, "the file ends inside a batch")
                whole = memoryview(self.file.pread(header.size, position))
                if len(whole) != header.size:
                    raise DamagedLog(self.path, position, "the file ends inside a batch")
                yield header, whole
                at = header.size
            position += at


def _put(disk: Disk, path: str, data: bytes) -> None:
    """Write a file that can be rebuilt, without syncing it, unless it has this content already."""
    try:
        if disk.read(path) != data:
            replace(disk, path, data, durably=False)
    except FileNotFoundError:
        file = disk.open(path, create=True)
        try:
            file.append(data)
        finally:
            file.close()
