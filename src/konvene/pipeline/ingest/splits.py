"""Splits a segment into parts that can be read on their own, at batch boundaries found by Kafka's index.

An index entry has the position of a batch, about every 4 KiB, so a segment of any size is split by reading a
few headers. Each used entry is checked against the log, since an index is only a hint. Without an index, the
headers are walked. The end of the log is found by walking on from the last entry: an incomplete batch (a
broker is writing it, or a crash tore it) is left for the next time. Invalid bytes that are followed by valid
batches stay in the part that contains them: the reader reports what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from konvene.codec.batches import HEADER_SIZE, BatchHeader, read_header
from konvene.codec.errors import CodecError, Truncated
from konvene.log.disk.read_only import ReadOnlyDisk, ReadOnlyFile
from konvene.log.index import BadIndex, OffsetIndex
from konvene.log.recovery import batch_fault, find_batch_after
from konvene.pipeline.sources.files import Segment

__all__ = ["TASK_BYTES", "Cut", "Extent", "Replaced", "Split", "cut", "extent", "read_bytes", "walk_headers"]

TASK_BYTES = 64 << 20
"""Approximate size of a part: seconds of work, so little is lost with a failed task."""
_AHEAD = 1 << 20


class Replaced(OSError):
    """The file that was planned to be read was replaced by another one; the query may be repeated."""


class Cut(NamedTuple):
    """A byte position at which a batch with this offset begins."""

    position: int
    offset: int


class Extent(NamedTuple):
    """The readable part of a segment: offsets `[first, next)`, up to byte `end`."""

    first: int
    next: int
    start: int
    end: int
    cuts: tuple[Cut, ...]
    """Possible split points, in order."""


class Split(NamedTuple):
    """A part of a segment: a range of bytes, and the offsets `[first, last]` to read from it."""

    path: str
    segment_base: int
    position: int
    end: int
    first: int
    last: int
    inode: int = 0

    @property
    def size(self) -> int:
        return self.end - self.position


def read_bytes(split: Split) -> memoryview:
    """Return the bytes of a part, followed by some zeros. Raises `Replaced` if its file was replaced.

    They are read, not mapped: truncating a mapped file would crash the process that accesses it."""
    handle = os.open(split.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_ino != split.inode:
            raise Replaced(f"{split.path} is another file than when it was planned to be read")
        data = bytearray(split.size + 64)
        view, at = memoryview(data)[: split.size], 0
        while at < split.size:
            count = os.preadv(handle, [view[at:]], split.position + at)
            if not count:
                raise Replaced(f"{split.path} is shorter than when it was planned to be read")
            at += count
        return memoryview(data)
    finally:
        os.close(handle)


def extent(segment: Segment, behind: int | None = None, *, has_records: bool = True) -> Extent | None:
    """Return how far a segment can be read now, and its split points; None if it has no complete batch.

    If another segment follows, with base offset `behind`, this one is closed: what is left at its end is
    damage and belongs to it. Without `has_records` only headers are read, so their batches need no valid
    checksum: of a cluster that is followed, the logs of user topics have nothing else. Raises
    FileNotFoundError if the file was deleted meanwhile."""
    file = ReadOnlyFile(segment.path)
    try:
        size = min(segment.size, file.size())
        indexed = list(_indexed(file, segment, size)) if has_records else []
        start = _first_batch(file, size, segment.base_offset)
        if start is None and not has_records:
            start = Cut(0, segment.base_offset)
        if start is None:
            if behind is None or not _any_nonzero(file, size, 0):
                return None
            return Extent(segment.base_offset, behind, 0, size, (Cut(0, segment.base_offset),))
        cuts = [start, *(c for c in indexed if c.position > start.position)]
        last = cuts[-1]
        thinned = [c for i, c in enumerate(cuts) if i == 0 or c.position - start.position >= _AHEAD]
        before = end = last
        for header, position in walk_headers(file, size, last.position, last.offset):
            before, end = end, Cut(position + header.size, header.next_offset)
            if position - thinned[-1].position >= _AHEAD:
                thinned.append(Cut(position, header.base_offset))
        if behind is not None:
            end = Cut(end.position, min(end.offset, behind))
            if _any_nonzero(file, size, end.position):
                end = Cut(size, end.offset)
        elif has_records and not _names_its_end(file, before, end):
            end = before
        if end.position == start.position:
            return None
        return Extent(start.offset, end.offset, start.position, end.position, _in_order(thinned))
    finally:
        file.close()


def cut(
    segment: Segment, found: Extent, first: int, last: int, task_bytes: int = TASK_BYTES
) -> Iterator[Split]:
    """Return the parts of a segment that together contain the offsets `[first, last]`, each about
    `task_bytes` large."""
    begin, end = Cut(found.start, found.first), Cut(found.end, found.next)
    for each in found.cuts:
        if each.offset <= first:
            begin = each
        if each.offset > last:
            end = each
            break
    size = end.position - begin.position
    share = size / max(1, round(size / task_bytes))
    parts = [begin]
    for each in found.cuts:
        due = begin.position + share * len(parts)
        if due - share < each.position < end.position and due <= each.position:
            parts.append(each)
    for at, behind in zip(parts, [*parts[1:], end], strict=True):
        yield Split(
            segment.path, segment.base_offset, at.position, behind.position,
            max(first, at.offset), min(last, behind.offset - 1), segment.inode,
        )  # fmt: skip


def _indexed(file: ReadOnlyFile, segment: Segment, size: int) -> Iterator[Cut]:
    """Yield the valid entries of the index, a megabyte or more apart, and the last valid one."""
    try:
        data = ReadOnlyDisk().read(segment.path.removesuffix(".log") + ".index")
        rows = OffsetIndex.load(segment.base_offset, data, 1 << 62).data
    except (OSError, BadIndex):
        return
    position, unused = 0, 0
    for at in range(4, len(rows), 8):
        unused = int.from_bytes(rows[at : at + 4], "big")
        if unused >= size:
            break
        if unused - position < _AHEAD and at + 8 < len(rows):
            continue
        found = _valid_batch(file, size, unused, segment.base_offset)
        if found is None:
            return
        yield found
        position = unused


def _valid_batch(file: ReadOnlyFile, size: int, position: int, at_least: int) -> Cut | None:
    """Return the batch at this position if it is complete and its checksum is right."""
    try:
        header = read_header(file.pread(HEADER_SIZE, position))
        if position + header.size > size:
            return None
        found = batch_fault(file.pread(header.size, position), header, at_least)
    except CodecError:
        return None
    return Cut(position, header.base_offset) if found is None else None


def _first_batch(file: ReadOnlyFile, size: int, base_offset: int) -> Cut | None:
    """Return the first batch; if it is invalid but followed by valid ones, the begin of the file; else
    None."""
    found = _valid_batch(file, size, 0, base_offset)
    if found is None and size >= HEADER_SIZE and find_batch_after(file, size, 0, base_offset) is not None:
        return Cut(0, base_offset)
    return found


def _names_its_end(file: ReadOnlyFile, begin: Cut, end: Cut) -> bool:
    """Return True if the last batch of a log, between two positions, has the last offset that it names.

    Of an unreadable batch this is certain only with the offset of each record, as batches are written."""
    batch = file.pread(end.position - begin.position, begin.position)
    try:
        header = read_header(batch)
        return (
            header.record_count == header.last_offset_delta + 1
            or batch_fault(batch, header, begin.offset) is None
        )
    except CodecError:
        return True  # Not one batch: damage precedes it.


def _in_order(cuts: list[Cut]) -> tuple[Cut, ...]:
    """Return the split points without those of batches that name an offset beyond later ones."""
    found: list[Cut] = []
    for each in reversed(cuts):
        if not found or each.offset < found[-1].offset:
            found.append(each)
    return tuple(reversed(found))


def _any_nonzero(file: ReadOnlyFile, size: int, position: int) -> bool:
    """Return True if any byte from `position` on is not zero."""
    while position < size:
        chunk = file.pread(min(_AHEAD, size - position), position)
        if chunk.count(0) != len(chunk):
            return True
        position += len(chunk) or size
    return False


def walk_headers(
    file: ReadOnlyFile, size: int, position: int, expected: int
) -> Iterator[tuple[BatchHeader, int]]:
    """Yield headers of complete batches with their positions, up to the end or to a torn batch.

    Invalid bytes before a valid batch are skipped. The first base offset must be at least `expected`. A batch
    that names offsets which later ones have is yielded as well: the reader decides which of them is wrong."""
    before = expected
    while position < size:
        chunk = file.pread(min(_AHEAD, size - position), position)
        at = 0
        while at < len(chunk):
            try:
                header = read_header(chunk, at)
                if header.base_offset < before or header.last_offset_delta < 0:
                    raise Truncated("an offset that cannot be here")
            except CodecError:
                if at and at + HEADER_SIZE > len(chunk) and position + len(chunk) < size:
                    break
                behind = find_batch_after(file, size, position + at, before)
                if behind is None:
                    return
                at = behind - position
                continue
            if position + at + header.size > size:
                behind = find_batch_after(file, size, position + at, before)
                if behind is None:
                    return
                at = behind - position
                continue
            yield header, position + at
            before = expected if header.base_offset >= expected else before
            expected = header.next_offset
            at += header.size
        if not chunk:
            return
        position += at
