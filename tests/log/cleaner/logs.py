"""Logs of a few small segments, and a stand-in for the cleaner: it keeps what a test wants kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from konvene.codec import batches as rb
from konvene.codec.batches import BatchHeader
from konvene.log.cleaner import segment_swap, selection
from konvene.log.cleaner.contract import CLEANED, CleanedSegment, CleanerStats, CleaningTask
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import Disk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.index import OffsetIndex, TimeIndex
from konvene.log.inspect.dump import find
from konvene.log.inspect.verify import verify
from konvene.log.partition import PartitionLog
from konvene.log.producers import AbortedTransaction, write_aborted

NOW = 1_760_000_000_000
T0 = TopicPartition("t", 0)
PLACE = "/d/t-0"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=1, cleanup_policy=frozenset({"compact"}))
IDENTITY = Identity("cluster", 1, "directory")

Batches = list[tuple[int, bytes]]
Keep = Callable[[BatchHeader, bytes], bool]
Cleaning = Callable[[Disk, CleaningTask], Generator[Any, None, CleanerStats]]


def opened(disk: Disk, config: LogConfig = CONFIG) -> tuple[LogDirectory, PartitionLog]:
    """The directory on this disk with its one log, made where it is not there."""
    directory = LogDirectory.open(disk, "/d", IDENTITY)
    if T0 in directory.partitions():
        return directory, directory.load(T0, config, NOW)
    return directory, directory.create([T0], config, NOW)[0]


def put(log: PartitionLog, key: bytes, value: bytes | None, epoch: int = 0, now_ms: int = NOW) -> int:
    """One record as a batch of its own; its offset."""
    return log.append_built([(key, value)], epoch, now_ms).base_offset


def filled(
    disk: MemoryDisk, records: int = 30, keys: int = 5, config: LogConfig = CONFIG
) -> tuple[LogDirectory, PartitionLog]:
    """A log in which few keys were written often, closed segments durable."""
    directory, log = opened(disk, config)
    for at in range(records):
        put(log, b"k%d" % (at % keys), b"value %03d" % at)
    log.sync()
    return directory, log


def content(log: PartitionLog) -> Batches:
    """Every batch: its offset and its bytes."""
    return [(header.base_offset, bytes(view)) for header, view in log.batches_from()]


def last_values(log: PartitionLog) -> dict[bytes, tuple[int, bytes | None]]:
    """Of each key its last record: what a compacted log must never lose."""
    found = {}
    aborted = [
        (transaction.producer_id, transaction.first_offset, transaction.last_offset)
        for transaction in log.aborted
    ]
    for header, view in log.batches_from():
        if header.is_control or any(
            header.producer_id == who and first <= header.base_offset <= last for who, first, last in aborted
        ):
            continue
        for record in rb.records(view, header):
            if record.key is not None:
                found[record.key] = (record.offset, record.value)
    return found


def task_for(directory: LogDirectory, log: PartitionLog) -> CleaningTask:
    """All that may be cleaned now."""
    seen = selection.log_to_clean(log, directory.cleaned_to(T0), log.end_offset, NOW)
    return selection.cleaning_task(log, seen, log.end_offset, NOW, 1 << 20)


def draft(
    disk: Disk, directory: str, base: int, batches: Iterable[tuple[BatchHeader, bytes]],
    aborted: Iterable[AbortedTransaction] = (),
) -> int:  # fmt: skip
    """A new segment under `.cleaned` names, durable; its size."""
    stem = f"{directory}/{base:020d}"
    offsets, times, size = OffsetIndex(base), TimeIndex(base), 0
    file = disk.open(f"{stem}.log{CLEANED}", create=True)
    for header, data in batches:
        if size:
            offsets.append(header.last_offset, size)
        times.append(header.max_timestamp, header.last_offset)
        file.append(data)
        size += len(data)
    file.sync()
    endings = {".index": bytes(offsets.data), ".timeindex": bytes(times.data)}
    if aborted:
        endings[".txnindex"] = write_aborted(list(aborted))
    for ending, data in endings.items():
        beside = disk.open(f"{stem}{ending}{CLEANED}", create=True)
        beside.append(data)
        beside.sync()
    disk.sync_directory(directory)
    return size


def keeping(keep: Keep, groups: Iterable[tuple[int, ...]]) -> Cleaning:
    """A cleaning that makes one segment of each group, of the batches that are to be kept."""

    def clean(disk: Disk, task: CleaningTask) -> Generator[Any, None, CleanerStats]:
        sources = {source.base_offset: source for source in task.sources}
        for bases in groups:
            kept = []
            for base in bases:
                data = disk.read(sources[base].path)
                kept += [
                    (header, bytes(view)) for header, view in rb.batches(data) if keep(header, bytes(view))
                ]
            there = {header.base_offset for header, _ in kept}
            aborted = [transaction for transaction in task.aborted if transaction.last_offset in there]
            size = draft(disk, task.directory, bases[0], kept, aborted)
            yield CleanedSegment(bases[0], sources[bases[-1]].next_offset, bases, size, NOW)
        return CleanerStats(end_offset=task.first_uncleanable_offset)

    return clean


def last_of_each_key(log: PartitionLog) -> Keep:
    """What a stand-in for a cleaner keeps: of each key the last record."""
    last = {offset for offset, _ in last_values(log).values()}
    return lambda header, _data: header.base_offset in last


def run(directory: LogDirectory, clean: Cleaning) -> list[Batches]:
    """One whole cleaning; what the log held before it and after each group."""
    log = directory.logs[T0]
    held = [content(log)]
    task = task_for(directory, log)
    segment_swap.begin_cleaning(directory, T0, task)
    steps = clean(directory.disk, task)
    while True:
        try:
            result = next(steps)
        except StopIteration as end:
            stats = end.value
            break
        if isinstance(result, CleanedSegment):
            segment_swap.swap_durably(log, result)
            held.append(content(log))
    segment_swap.finish_cleaning(log)
    directory.set_cleaned_offset(T0, stats.end_offset)
    segment_swap.remove_deleted(log, NOW)
    segment_swap.remove_deleted(log, NOW + CONFIG.file_delete_delay_ms)
    return held


def faults(disk: MemoryDisk) -> list[str]:
    """What is wrong with the log's files."""
    return [str(found) for found in verify(disk, find(disk, PLACE)[0]).findings if found.is_damage]


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]
