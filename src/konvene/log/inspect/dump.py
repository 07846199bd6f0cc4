"""Reads the files of a log without opening the log: valid or damaged, written by konvene or Kafka.

Opening a log for a broker (`opening`) truncates a torn tail, rebuilds indexes and rejects damage. This module
changes nothing. It finds the partitions below a path, walks over the batches of a segment, reports bytes that
are no valid batch and continues at the next valid one. It also decodes the small files beside a segment. It
does not interpret records.

A broker may be writing meanwhile. Sizes are taken once at the beginning; a batch that is only partly written
looks like a torn tail.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from konvene.codec.batches import BatchHeader, read_header
from konvene.codec.errors import CodecError, Malformed, Truncated
from konvene.log.disk.files import Disk, File
from konvene.log.epochs import FILE_NAME as EPOCHS_NAME
from konvene.log.epochs import LeaderEpochs
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.producers import Producers, read_aborted
from konvene.log.recovery import batch_fault, find_batch_after
from konvene.log.segment import CHUNK_BYTES

__all__ = ["Batch", "Damage", "Folder", "Listing", "NotALog", "find", "first_position", "listing", "walk"]

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_LEAVING = re.compile(r"\.[0-9a-zA-Z]+-(delete|future|stray)\Z")
_SEGMENT = re.compile(r"[0-9]{20}\.log\Z")
_BESIDE = re.compile(r"[0-9]{20}\.log(\.[0-9]+)?\.(cleaned|swap|deleted)\Z")
"""Files that a cleaning writes or has replaced."""
CUT = ".cut"
"""Suffix of files with the bytes that a repair removed."""
_CUT = re.compile(r"[0-9]{20}(-[0-9]+)?\.cut\Z")
_CHECKPOINT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\Z")
_BASE = re.compile(r"([0-9]{20})[.-]")


class NotALog(ValueError):
    """The path has no log files; the message describes what was expected there."""


class Folder(NamedTuple):
    """The segments of one partition, or some of them.

    Topic and number come from the folder's name (`topic-0`), and are None if it has another name.
    """

    topic: str | None
    partition: int | None
    path: str
    logs: tuple[str, ...]
    """Names of its segments, ascending."""

    def __str__(self) -> str:
        return self.path if self.topic is None else f"{self.topic}-{self.partition}"


class Batch(NamedTuple):
    """A valid batch and its position in the file. The view is valid until the next batch is read."""

    header: BatchHeader
    position: int
    view: memoryview


class Damage(NamedTuple):
    """A range of a file that is not a valid batch."""

    position: int
    offset: int
    """First offset that may be missing."""
    why: str
    resumes_at: int | None
    """Position of the next valid batch in the file, or None; `position` itself for a whole batch with an
    impossible offset."""


class Listing(NamedTuple):
    """The decoded rows of an index, snapshot or checkpoint file."""

    columns: tuple[str, ...]
    rows: list[tuple[int | None, ...]]
    fault: str | None = None
    """Why the file is invalid although it could be decoded."""


# finding ------------------------------------------------------------------------------------------


def find(disk: Disk, path: str) -> list[Folder]:
    """Find the partitions at `path`: a segment's file, a partition's folder, or a directory of such folders.

    Raises `NotALog` for anything else and FileNotFoundError if the path does not exist.
    """
    path = path.rstrip("/") or "/"
    if not disk.is_directory(path):
        disk.size(path)
        folder, _, name = path.rpartition("/")
        if any(kind.match(name) for kind in (_SEGMENT, _BESIDE, _CHECKPOINT, _CUT)):
            return [_folder(folder or ".", (name,))]
        raise NotALog(f"{path} is no segment of a log (20 digits and .log)")
    logs = _segments(disk, path)
    if logs:
        return [_folder(path, logs)]
    found = [name for name in disk.listdir(path) if _PARTITION.match(name)]
    folders = [_folder(f"{path}/{name}", _segments(disk, f"{path}/{name}")) for name in found]
    folders = [folder for folder in folders if disk.is_directory(folder.path)]
    if not folders:
        if _PARTITION.match(path.rpartition("/")[2]):
            return [_folder(path, ())]
        raise NotALog(f"{path} is neither a partition's folder (topic-0) nor a directory of such folders")
    return sorted(folders, key=lambda folder: (folder.topic or "", folder.partition or 0))


def base_offset_of(name: str) -> int:
    """Return the base offset at the beginning of a file's name; 0 for a snapshot of the cluster metadata."""
    match = _BASE.match(name)
    if match is None:
        raise NotALog(f"{name} does not begin with the 20 digits of an offset")
    return 0 if name.endswith(".checkpoint") else int(match[1])


def _segments(disk: Disk, path: str) -> tuple[str, ...]:
    if not disk.is_directory(path):
        return ()
    return tuple(name for name in disk.listdir(path) if _SEGMENT.match(name))


def _folder(path: str, logs: tuple[str, ...]) -> Folder:
    match = _PARTITION.match(_LEAVING.sub("", path.rpartition("/")[2]))
    return Folder(match[1] if match else None, int(match[2]) if match else None, path, logs)


# walking ------------------------------------------------------------------------------------------


def walk(file: File, size: int, base_offset: int, position: int = 0) -> Iterator[Batch | Damage]:
    """Yield each valid batch from `position` on, and the damaged ranges between them, in file order."""
    expected, ceiling = base_offset, base_offset + 0x7FFF_FFFF
    while position < size:
        chunk = memoryview(file.pread(min(CHUNK_BYTES, size - position), position))
        at, fault = 0, None if chunk else "the file was truncated meanwhile"
        while at < len(chunk):
            try:
                header = read_header(chunk, at)
            except Truncated as error:
                if position + len(chunk) < size:
                    break
                fault = _without_place(error, at)
                break
            except CodecError as error:
                fault = _without_place(error, at)
                break
            end = at + header.size
            if position + end > size:
                fault = f"a batch of {header.size} bytes is cut: {size - position - at} are there"
                break
            if end > len(chunk):
                if at:
                    break
                chunk = memoryview(file.pread(header.size, position))
            fault = batch_fault(chunk[at:end], header, expected, ceiling)
            if fault is not None:
                if batch_fault(chunk[at:end], header, 0) is not None:
                    break
                # The checksum does not cover the offset: a whole batch with a wrong one is no torn tail.
                yield Damage(position + at, expected, fault, position + at)
                fault = None
            yield Batch(header, position + at, chunk[at:end])
            expected, at = header.next_offset, end
        position += at
        if fault is not None:
            behind = find_batch_after(file, size, position, expected)
            if behind is None and _only_zeros(file, size, position):
                fault = f"nothing but zeros in the last {size - position} bytes"
            yield Damage(position, expected, fault, behind)
            position = size if behind is None else behind


def _without_place(error: CodecError, at: int) -> str:
    """Return the error's message without its position, which is relative to the chunk and not to the file."""
    return str(error).replace(f" at {at}", "", 1)


def first_position(disk: Disk, log_path: str, base_offset: int, size: int, offset: int) -> int:
    """Return a position at or before the batch of `offset`, from the index; 0 if the index is invalid."""
    try:
        index = OffsetIndex.load(base_offset, disk.read(log_path[:-4] + ".index"), size)
    except (OSError, BadIndex):
        return 0
    position = index.lookup(offset)
    if not position:
        return 0
    file = disk.open(log_path)
    try:
        header = read_header(file.pread(61, position))
        whole = file.pread(min(header.size, size - position), position)
        return (
            position
            if header.base_offset <= offset and batch_fault(whole, header, base_offset) is None
            else 0
        )
    except CodecError:
        return 0
    finally:
        file.close()


def _only_zeros(file: File, size: int, position: int) -> bool:
    while position < size:
        chunk = file.pread(min(CHUNK_BYTES, size - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


# listing ------------------------------------------------------------------------------------------


def listing(disk: Disk, path: str) -> Listing | None:
    """Return the rows of an index, a producer snapshot or a leader epoch checkpoint; None for any other
    file."""
    name = path.rpartition("/")[2]
    if name == EPOCHS_NAME:
        return _epochs(disk.read(path))
    read = _LISTINGS.get(name[20:])
    return None if read is None else read(base_offset_of(name), disk.read(path))


def _offset_index(base_offset: int, data: bytes) -> Listing:
    rows: list[tuple[int | None, ...]] = []
    for relative, position in struct.iter_unpack(">iI", data[: len(data) // 8 * 8]):
        if relative == 0 and position == 0:
            break  # Space taken in advance: the first batch of a file has no entry.
        rows.append((base_offset + relative, position))
    try:
        OffsetIndex.load(base_offset, data, 1 << 62)
        fault = None
    except BadIndex as error:
        fault = str(error)
    return Listing(("offset", "position"), rows, fault)


def _time_index(base_offset: int, data: bytes) -> Listing:
    rows: list[tuple[int | None, ...]] = []
    for timestamp, relative in struct.iter_unpack(">qi", data[: len(data) // 12 * 12]):
        if timestamp == 0 and relative == 0:
            break
        rows.append((timestamp, base_offset + relative))
    try:
        TimeIndex.load(base_offset, data)
        fault = None
    except BadIndex as error:
        fault = str(error)
    return Listing(("timestamp", "offset"), rows, fault)


def _aborted(_base_offset: int, data: bytes) -> Listing:
    columns = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    try:
        return Listing(columns, [tuple(row) for row in read_aborted(data)])
    except Malformed as error:
        return Listing(columns, [], str(error))


def _snapshot(_base_offset: int, data: bytes) -> Listing:
    columns = (
        "producer_id", "producer_epoch", "coordinator_epoch", "last_timestamp", "first_sequence",
        "last_sequence", "first_offset", "last_offset", "current_transaction_first_offset",
    )  # fmt: skip
    try:
        producers = Producers.restore(data)
    except Malformed as error:
        return Listing(columns, [], str(error))
    rows: list[tuple[int | None, ...]] = []
    for producer_id, p in producers.by_id.items():
        last = p.batches[-1][:4] if p.batches else (None, None, None, None)
        rows.append((producer_id, p.epoch, p.coordinator_epoch, p.last_timestamp, *last, p.transaction_start))
    return Listing(columns, rows)


def _epochs(data: bytes) -> Listing:
    columns = ("leader_epoch", "start_offset")
    try:
        return Listing(columns, [tuple(row) for row in LeaderEpochs.decode(data).starts])
    except Malformed as error:
        return Listing(columns, [], str(error))


_LISTINGS = {
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _aborted,
    ".snapshot": _snapshot,
}
