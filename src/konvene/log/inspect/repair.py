"""Repairs a damaged log, when the operator decides so: truncates it at the first damage and keeps a copy.

A broker rejects a log with damage in front of valid batches, because truncating there loses acknowledged
records (see `recovery`). `plan` reads one partition from its first byte and finds the damage and what follows
it; `repair` truncates there. The removed bytes are kept beside the log in files named after their first
offset, `00000000000000000042.cut`, which brokers ignore and `konvene log dump` reads.

If a log is undamaged but ends before an offset that was durable, there is nothing to truncate: records are
lost, and the recovery point is lowered. Indexes are removed; a start rebuilds them. The order is that of
`LogDirectory.truncate`: the removed bytes are safe first, then the recovery point is lowered, then files are
deleted from the last one backwards, so that a crash leaves a log that is either rejected or repaired.
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
from konvene.log.cleaner.recovery import complete_swap, is_interrupted
from konvene.log.directory import LOCK_NAME, META_NAME
from konvene.log.disk.files import Disk, File, replace
from konvene.log.errors import DamagedLog
from konvene.log.inspect.dump import CUT, Batch, Folder, base_offset_of, find, walk
from konvene.log.recovery import scan
from konvene.log.segment import CHUNK_BYTES, segment_name

__all__ = ["LostBatches", "RepairPlan", "data_directory", "durable_offsets", "lock_of", "plan", "repair"]

OnBytesRead = Callable[[int], None]

_DERIVED = (".index", ".timeindex")


class LostBatches(NamedTuple):
    """Totals of the valid batches that a repair removes."""

    batches: int
    records: int
    first_offset: int | None
    last_offset: int | None


class RepairPlan(NamedTuple):
    """Where to truncate one partition, and what is removed."""

    folder: Folder
    end_offset: int
    """End of the log after the repair."""
    durable: int | None
    """Recovery point in the data directory; None if there is none."""
    file: str | None
    """Name of the damaged segment; None if there is no damage."""
    position: int
    why: str | None
    """Description of the damage; None if there is none."""
    bytes: int
    lost: LostBatches
    later: tuple[str, ...]
    """Later segments, which are removed as a whole."""

    @property
    def is_needed(self) -> bool:
        return self.why is not None

    @property
    def offsets(self) -> tuple[int, int] | None:
        """First and last offset that will be missing; None if no lost offset is known."""
        last = max((self.durable or 0) - 1, -1 if self.lost.last_offset is None else self.lost.last_offset)
        return (self.end_offset, last) if self.is_needed and last >= self.end_offset else None


def data_directory(disk: Disk, path: str) -> str | None:
    """Return the data directory (`log.dir`) that `path` is or that directly contains it; else None."""
    for directory in (path, path.rpartition("/")[0] or "/"):
        if any(disk.exists(f"{directory}/{name}") for name in (META_NAME, RECOVERY_POINTS, LOCK_NAME)):
            return directory
    return None


def lock_of(disk: Disk, path: str) -> str | None:
    """Return the lock file of the data directory of `path`; None if `path` is in no data directory."""
    directory = data_directory(disk, path)
    return None if directory is None else f"{directory}/{LOCK_NAME}"


def durable_offsets(disk: Disk, path: str) -> dict[str, int]:
    """Return each partition's recovery point by folder name. Raises `DamagedLog` if the checkpoint is
    damaged."""
    directory = data_directory(disk, path)
    points = {} if directory is None else read_checkpoint(disk, f"{directory}/{RECOVERY_POINTS}")
    return {str(partition): offset for partition, offset in points.items()}


def plan(
    disk: Disk, folder: Folder, durable: int | None, on_read: OnBytesRead = lambda _bytes: None
) -> RepairPlan:
    """Read a partition from its first byte and plan its repair. Raises `OSError` if files cannot be read.

    `durable` is the recovery point, and `on_read` is called with the size of each range that was read. A gap
    between two segments is damage, unless it is below the recovery point or the cleaner's progress, or the
    previous segment has gaps too (see `opening`). Without a recovery point no gap is damage.
    """
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
        detector = _GapDetector(base, on_read)
        try:
            size = disk.size(path)
            end = scan(file, size, base, detector.batch)
        finally:
            file.close()
        was_compacted = detector.has_gaps or not size
        if end.fault is not None:
            return _planned(disk, folder, at, end.position, end.next_offset, durable, end.fault)
        expected = end.next_offset
    short = None
    if expected < (durable or 0):
        short = f"the log ends at offset {expected}, but {durable} was durable"
    return RepairPlan(folder, expected, durable, None, 0, short, 0, LostBatches(0, 0, None, None), ())


class _GapDetector:
    """A reader of a segment's batches that detects missing offsets between them."""

    def __init__(self, base: int, on_read: OnBytesRead) -> None:
        self._next = base
        self._on_read = on_read
        self.has_gaps = False

    def batch(self, header: BatchHeader, view: memoryview) -> None:
        self.has_gaps = self.has_gaps or header.base_offset != self._next
        self._next = header.next_offset
        self._on_read(len(view))


def _compacted(disk: Disk, folder: Folder) -> int:
    """Return the cleaner's stored progress for a partition: the offset below which it is compacted, or 0."""
    path = f"{folder.path.rpartition('/')[0] or '.'}/{CLEANED_OFFSETS}"
    if folder.topic is None or folder.partition is None or not disk.exists(path):
        return 0
    try:
        return read_checkpoint(disk, path).get(TopicPartition(folder.topic, folder.partition), 0)
    except DamagedLog:
        return 0


def _planned(
    disk: Disk, folder: Folder, at: int, position: int, end_offset: int, durable: int | None, why: str
) -> RepairPlan:
    """Return the plan to truncate segment number `at` at `position`, with totals of the removed batches.

    `end_offset` is the log's end after the truncation, `durable` the recovery point, `why` the damage.
    """
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
    lost = LostBatches(batches, records, first, last)
    later = folder.logs[at + 1 :]
    return RepairPlan(folder, end_offset, durable, folder.logs[at], position, why, count, lost, later)


def repair(disk: Disk, planned: RepairPlan) -> list[str]:
    """Truncate the log and keep the removed bytes; return the names of the `.cut` files that hold them.

    The caller has locked the data directory. An interrupted swap of cleaned segments is completed first;
    otherwise the next start would complete it and restore removed records. Raises `OSError`, and `DamagedLog`
    if the swap cannot be completed. A repair that failed can be repeated.
    """
    names = disk.listdir(planned.folder.path)
    if is_interrupted(names):
        complete_swap(disk, planned.folder.path, names)
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


def _keep(disk: Disk, planned: RepairPlan, path: str) -> str:
    """Copy the bytes after the truncation position to a `.cut` file, durably; return its name."""
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
    """Return the name of a `.cut` file that does not exist yet."""
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


def _lower_recovery_point(disk: Disk, planned: RepairPlan) -> None:
    """Lower the stored recovery point to the end of the repaired log."""
    path = f"{planned.folder.path.rpartition('/')[0] or '.'}/{RECOVERY_POINTS}"
    if planned.folder.topic is None or planned.folder.partition is None or not disk.exists(path):
        return
    points = read_checkpoint(disk, path)
    partition = TopicPartition(planned.folder.topic, planned.folder.partition)
    if points.get(partition, 0) > planned.end_offset:
        points[partition] = planned.end_offset
        replace(disk, path, encode_checkpoint(points))
