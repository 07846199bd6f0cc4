"""Recovers segments whose last bytes may not have reached the disk.

A crash can damage the tail of a log: bytes that were written but not synced, and therefore never
acknowledged. `scan` reads batch by batch with checksums and stops at the first invalid byte. If no valid
batch follows, the rest is a torn tail: it is truncated and reported. If a valid batch follows, the invalid
bytes may have been acknowledged, and truncating there would silently drop everything after it: `DamagedLog`
is raised and the operator decides, with `konvene log repair`.

The rule may reject too much: after a power cut, a file system that writes pages out of order may leave a hole
in front of valid batches that were never acknowledged. That is rejected as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from konvene.codec.batches import HEADER_SIZE, MAGIC, BatchHeader, check, read_header
from konvene.codec.errors import CodecError
from konvene.log.disk.files import File
from konvene.log.errors import DamagedLog
from konvene.log.segment import CHUNK_BYTES, Segment


class RecoveryResult(NamedTuple):
    """The result of opening a log: how much was read, and what was truncated and why."""

    clean: bool
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_at_offset: int | None = None
    cut_file: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        if self.cut_bytes:
            return f"cut {self.cut_bytes} bytes of {self.cut_file} at offset {self.cut_at_offset}: {self.why}"
        return "clean" if self.clean else f"sound, {self.scanned_bytes} bytes read"


class ScanEnd(NamedTuple):
    """Where the valid batches of a file end.

    `fault` describes what is invalid there; None at the end of the file.
    """

    position: int
    next_offset: int
    fault: str | None


OnBatch = Callable[[BatchHeader, memoryview], None]


def scan(file: File, size: int, base_offset: int, on_batch: OnBatch) -> ScanEnd:
    """Read a file's batches up to the first invalid one, and call `on_batch` with each."""
    position, expected = 0, base_offset
    ceiling = base_offset + 0x7FFF_FFFF
    while position < size:
        view = memoryview(file.pread(min(CHUNK_BYTES, size - position), position))
        at = 0
        while at < len(view):
            try:
                header = read_header(view, at)
            except CodecError as error:
                if len(view) - at < HEADER_SIZE and position + len(view) < size:
                    break
                return ScanEnd(position + at, expected, str(error))
            end = at + header.size
            if end > len(view):
                if position + end > size:
                    return ScanEnd(position + at, expected, f"a batch of {header.size} bytes is cut")
                break
            fault = batch_fault(view[at:end], header, expected, ceiling)
            if fault is not None:
                return ScanEnd(position + at, expected, fault)
            on_batch(header, view[at:end])
            expected = header.next_offset
            at = end
        if not at:
            # One batch larger than a chunk.
            header = read_header(view)
            whole = memoryview(file.pread(header.size, position))
            fault = batch_fault(whole, header, expected, ceiling)
            if fault is not None:
                return ScanEnd(position, expected, fault)
            on_batch(header, whole)
            expected = header.next_offset
            at = header.size
        position += at
    return ScanEnd(position, expected, None)


def find_batch_after(file: File, size: int, position: int, expected_offset: int) -> int | None:
    """Return the position of the first valid batch after `position`, at any byte; None if there is none.

    Its base offset must be at least `expected_offset`.
    """
    window = position + 1
    while window + HEADER_SIZE <= size:
        chunk = file.pread(min(CHUNK_BYTES + HEADER_SIZE, size - window), window)
        found = chunk.find(MAGIC, 16)
        while found >= 0 and found - 16 + HEADER_SIZE <= len(chunk):
            at = window + found - 16
            try:
                header = read_header(chunk, found - 16)
                plausible = (
                    at + header.size <= size
                    and header.partition_leader_epoch >= -1
                    and expected_offset <= header.base_offset < expected_offset + 0x8000_0000
                )
                if plausible and batch_fault(file.pread(header.size, at), header, expected_offset) is None:
                    return at
            except CodecError:
                pass
            found = chunk.find(MAGIC, found + 1)
        window += CHUNK_BYTES
    return None


def raise_unless_torn(
    segments: Sequence[Segment], at: int, end: ScanEnd, fault: str, *, in_order: bool = True
) -> None:
    """Raise `DamagedLog` unless the bytes from `end` of segment number `at` on are a torn tail.

    That means that no valid batch follows. `fault` describes the first invalid bytes, for the error.
    `in_order` is True if each segment was synced before the next one took records: then later segments must
    have no valid batch either. Otherwise they are not searched, because a power cut may have kept only a
    later segment, which was never acknowledged.
    """
    torn = segments[at]
    if _is_whole(torn.file, end.position):
        # No write stops in a batch whose checksum holds: a batch before it, or its own offset, was changed.
        raise DamagedLog(torn.path, end.position, f"{fault}, and yet its checksum holds")
    behind = find_batch_after(torn.file, torn.file.size(), end.position, end.next_offset)
    if behind is not None:
        raise DamagedLog(torn.path, end.position, f"{fault}; a sound batch follows at byte {behind}")
    for segment in segments[at + 1 :] if in_order else ():
        if find_batch_after(segment.file, segment.file.size(), -1, end.next_offset) is not None:
            raise DamagedLog(torn.path, end.position, f"{fault}; sound batches follow in {segment.path}")


def _is_whole(file: File, position: int) -> bool:
    """Return True if there is a batch with a valid checksum at `position`, whatever its offset."""
    try:
        header = read_header(file.pread(HEADER_SIZE, position))
        check(file.pread(header.size, position), header)
    except CodecError:
        return False
    return True


def batch_fault(
    batch: bytes | memoryview, header: BatchHeader, expected_offset: int, ceiling: int = 0x7FFF_FFFF_FFFF_FFFF
) -> str | None:
    """Check a completely read batch: return a description of what is wrong with it, or None if it is valid.

    Its checksum must be valid, and its offsets between `expected_offset` and `ceiling`.
    """
    try:
        check(batch, header)
    except CodecError as error:
        return str(error)
    if header.base_offset < expected_offset:
        return f"offset {header.base_offset} where at least {expected_offset} was due"
    if header.last_offset > ceiling:
        return f"offset {header.last_offset} in a segment that cannot hold more than {ceiling}"
    return None
