"""What a person decides about a damaged log: everything from the first damage on goes, and nothing unseen.

A broker refuses a log with damage in front of sound batches, because cutting there loses what was
acknowledged (see `recovery`). `plan` reads one partition from its first byte and says where that place is and
what stands behind it; `carry_out` cuts there. The bytes that go are kept beside the log in files named after
the first offset in them, `00000000000000000042.cut`, which no broker reads, neither ours nor Kafka's, and
`konvene log dump` does.

Where the log merely ends before an offset that was durable, there is nothing to cut: the loss has happened,
and the recovery point is lowered to say so. Indexes that lead behind the cut are removed; a start makes them
again. The order is that of `LogDirectory.truncate`: the bytes that go are safe first, then the recovery point
is lowered, then files go from the last one on, so that a crash leaves a log that is refused, or repaired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from konvene.codec.batches import BatchHeader
from konvene.log.checkpoints import (
    CLEANED_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    encode_checkpoint,
    read_checkpoint,
)
from konvene.log.cleaner.recovery import complete, is_interrupted
from konvene.log.directory import LOCK_NAME, META_NAME
from konvene.log.disk.files import Disk, File, replace
from konvene.log.errors import DamagedLog
from konvene.log.inspect.dump import CUT, Batch, Folder, base_offset_of, find, walk
from konvene.log.recovery import scan
from konvene.log.segment import CHUNK_BYTES, segment_name

__all__ = ["Lost", "Plan", "carry_out", "data_directory", "durable_offsets", "lock_of", "plan"]

Told = Callable[[int], None]

_DERIVED = (".index", ".timeindex")


class Lost(NamedTuple):
    """The sound batches among the bytes that go."""

    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None


class Plan(NamedTuple):
    """One partition: where it is to be cut, and what goes."""

    folder: Folder
    end_offset: int
    """Where the log ends once it is repaired."""
    durable: int | None
    """Up to which offset it was durable, as the data directory says; None where it does not say."""
    file: str | None
    """The segment's file that is damaged, None where none is."""
    position: int
    why: str | None
    """None where nothing is wrong."""
    bytes: int
    lost: Lost
    later: tuple[str, ...]
    """Segments behind the damaged one, which go whole."""

    @property
    def is_needed(self) -> bool:
        return self.why is not None

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first and last offset that will not be there any more, as far as can be told."""
        last = max((self.durable or 0) - 1, -1 if self.lost.last_offset is None else self.lost.last_offset)
        return (self.end_offset, last) if self.is_needed and last >= self.end_offset else None


def data_directory(disk: Disk, path: str) -> str | None:
    """The data directory that a path is, or lies in; None for a folder that stands alone."""
    for place in (path, path.rpartition("/")[0] or "/"):
        if any(disk.exists(f"{place}/{name}") for name in (META_NAME, RECOVERY_POINTS, LOCK_NAME)):
            return place
    return None


def lock_of(disk: Disk, path: str) -> str | None:
    """The file that a broker locks while it has these logs; None for a folder that stands alone."""
    place = data_directory(disk, path)
    return None if place is None else f"{place}/{LOCK_NAME}"


def durable_offsets(disk: Disk, path: str) -> dict[str, int]:
    """Up to where each partition was durable, by its folder's name. `DamagedLog` if that is damaged."""
    place = data_directory(disk, path)
    points = {} if place is None else read_checkpoint(disk, f"{place}/{RECOVERY_POINTS}")
    return {str(partition): offset for partition, offset in points.items()}


def plan(disk: Disk, folder: Folder, durable: int | None, told: Told = lambda _bytes: None) -> Plan:
    """Read a partition from its first byte. Raises `OSError` where files cannot be read.

    Compaction leaves gaps between segments. Behind the offset that is known to be `durable`, and behind the
    last one that is known to be compacted, it has left others inside the segment before (see `opening`)."""
    expected = base_offset_of(folder.logs[0]) if folder.logs else 0
    known = durable if durable is None else max(durable, _compacted(disk, folder))
    was_compacted = False
    for at, name in enumerate(folder.logs):
        base, path = base_offset_of(name), f"{folder.path}/{name}"
        gap = base > expected and known is not None and expected >= known and not was_compacted
        if at and (base < expected or gap):
            before = folder.logs[at - 1]
            size = disk.size(f"{folder.path}/{before}")
            why = f"{name} begins where offset {expected} was due"
            return _planned(disk, folder, at - 1, size, expected, durable, why)
        file = disk.open(path)
        seen = _Seen(base, told)
        try:
            size = disk.size(path)
            end = scan(file, size, base, seen.batch)
        finally:
            file.close()
        was_compacted = seen.has_gaps or not size
        if end.fault is not None:
            return _planned(disk, folder, at, end.position, end.next_offset, durable, end.fault)
        expected = end.next_offset
    short = None
    if expected < (durable or 0):
        short = f"the log ends at offset {expected}, but {durable} was durable"
    return Plan(folder, expected, durable, None, 0, short, 0, Lost(0, 0, None, None), ())


class _Seen:
    """Is shown each batch of a segment, and tells whether offsets are missing between them."""

    def __init__(self, base: int, told: Told) -> None:
        self._next = base
        self._told = told
        self.has_gaps = False

    def batch(self, header: BatchHeader, view: memoryview) -> None:
        self.has_gaps = self.has_gaps or header.base_offset != self._next
        self._next = header.next_offset
        self._told(len(view))


def _compacted(disk: Disk, folder: Folder) -> int:
    """Up to which offset a log is known to be compacted."""
    path = f"{folder.path.rpartition('/')[0] or '.'}/{CLEANED_OFFSETS}"
    if folder.topic is None or folder.partition is None or not disk.exists(path):
        return 0
    try:
        return read_checkpoint(disk, path).get(TopicPartition(folder.topic, folder.partition), 0)
    except DamagedLog:
        return 0


def _planned(
    disk: Disk, folder: Folder, at: int, position: int, end_offset: int, durable: int | None, why: str
) -> Plan:
    """The plan to cut in segment `at`, with what is sound among the bytes behind."""
    count = batches = records = 0
    first = last = None
    for number, name in enumerate(folder.logs[at:]):
        path = f"{folder.path}/{name}"
        start, size = (0 if number else position), disk.size(path)
        count += size - start
        file = disk.open(path)
        try:
            for part in walk(file, size, base_offset_of(name) if number else end_offset, start):
                if isinstance(part, Batch):
                    batches += 1
                    records += part.header.record_count
                    first = part.header.base_offset if first is None else first
                    last = part.header.last_offset
        finally:
            file.close()
    lost = Lost(batches, records, first, last)
    later = folder.logs[at + 1 :]
    return Plan(folder, end_offset, durable, folder.logs[at], position, why, count, lost, later)


def carry_out(disk: Disk, planned: Plan) -> list[str]:
    """Cut, and keep what goes; the names of the files in which it is kept.

    The caller has locked the data directory. A compaction that is about to take effect is finished first, or
    the next start would do it and bring back what goes. Raises `OSError`, and `DamagedLog` where it cannot be
    finished; what was done until then stands, and nothing is lost by doing it again."""
    names = disk.listdir(planned.folder.path)
    if is_interrupted(names):
        complete(disk, planned.folder.path, names)
        planned = plan(disk, find(disk, planned.folder.path)[0], planned.durable)
    folder = planned.folder
    kept = []
    if planned.file is not None and disk.size(f"{folder.path}/{planned.file}") > planned.position:
        kept.append(_keep(disk, planned, f"{folder.path}/{planned.file}"))
    _lower_recovery_point(disk, planned)
    for name in reversed(planned.later):
        path = f"{folder.path}/{name}"
        aside = _free_name(disk, folder.path, base_offset_of(name))
        _remove_derived(disk, path)
        disk.rename(path, f"{folder.path}/{aside}")
        kept.append(aside)
        disk.sync_directory(folder.path)
    if planned.file is not None:
        path = f"{folder.path}/{planned.file}"
        _remove_derived(disk, path)
        disk.sync_directory(folder.path)
        file = disk.open(path)
        try:
            file.truncate(planned.position)
            file.sync()
        finally:
            file.close()
    return sorted(kept)


def _keep(disk: Disk, planned: Plan, path: str) -> str:
    """Copy what stands behind the cut, durably."""
    folder = planned.folder.path
    name = _free_name(disk, folder, planned.end_offset)
    draft = f"{folder}/{name}.tmp"
    if disk.exists(draft):
        disk.remove(draft)
    source, target = disk.open(path), disk.open(draft, create=True)
    try:
        _copy(source, target, planned.position, disk.size(path))
        target.sync()
    finally:
        source.close()
        target.close()
    disk.rename(draft, f"{folder}/{name}")
    disk.sync_directory(folder)
    return name


def _copy(source: File, target: File, position: int, size: int) -> None:
    while position < size:
        chunk = source.pread(min(CHUNK_BYTES, size - position), position)
        if not chunk:
            raise OSError(f"{source.path} ends at byte {position}")
        target.append(chunk)
        position += len(chunk)


def _free_name(disk: Disk, folder: str, offset: int) -> str:
    """A name that no earlier repair has used."""
    name, number = segment_name(offset, CUT), 0
    while disk.exists(f"{folder}/{name}"):
        number += 1
        name = segment_name(offset, f"-{number}{CUT}")
    return name


def _remove_derived(disk: Disk, log_path: str) -> None:
    for suffix in _DERIVED:
        path = log_path.removesuffix(".log") + suffix
        if disk.exists(path):
            disk.remove(path)


def _lower_recovery_point(disk: Disk, planned: Plan) -> None:
    """The data directory no longer says that more was durable."""
    path = f"{planned.folder.path.rpartition('/')[0] or '.'}/{RECOVERY_POINTS}"
    if planned.folder.topic is None or planned.folder.partition is None or not disk.exists(path):
        return
    points = read_checkpoint(disk, path)
    partition = TopicPartition(planned.folder.topic, planned.folder.partition)
    if points.get(partition, 0) > planned.end_offset:
        points[partition] = planned.end_offset
        replace(disk, path, encode_checkpoint(points))
