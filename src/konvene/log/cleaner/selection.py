"""Which log is cleaned next, and how much of it: Kafka's rules (`LogCleanerManager`, `LogToClean`).

A log is three parts, one behind the other. What was cleaned before: each key once, up to
`first_dirty_offset`. What may be cleaned now: finished segments up to `first_uncleanable_offset`. The rest:
the active segment, what lies behind the first open transaction, what is younger than `min.compaction.lag.ms`,
and here (Kafka may clean it) what is not durable yet, data or index: a record is never dropped for the sake
of one that a power cut takes back.

The dirtier a log, the sooner it is cleaned: the second part must be more than `min.cleanable.dirty.ratio` of
the first two, or older than `max.compaction.lag.ms`. Nothing here changes anything; the first look into a
segment may read its time index, or its first header.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from konvene.codec.batches import HEADER_SIZE, NO_TIMESTAMP, read_header
from konvene.codec.errors import CodecError
from konvene.log.cleaner.contract import LastRecord, Source, Task
from konvene.log.config import LONG_MAX, LogConfig
from konvene.log.errors import DamagedLog
from konvene.log.partition import PartitionLog
from konvene.log.segment import Segment

__all__ = ["Look", "filthiest", "is_cleanable", "look", "task_of"]

Which = TypeVar("Which")


class Look(NamedTuple):
    """What a log would give to be cleaned."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """Where the first segment begins that is not touched."""
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    """Of the cleanable bytes to them and the clean ones; 0 where there is nothing."""
    compaction_delay_ms: int
    """For how much longer than `max.compaction.lag.ms` something has waited."""
    must_reset_checkpoint: bool
    """What was said to be clean cannot be so: `first_dirty_offset` is to be said instead."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes


def look(log: PartitionLog, cleaned_to: int | None, high_watermark: int, now_ms: int) -> Look:
    """Look at a log whose last cleaning ended at `cleaned_to`.

    `LogOffline` where it cannot be read, `DamagedLog` where what is read is no batch."""
    start, end = log.start_offset, log.end_offset
    dirty = start if cleaned_to is None else cleaned_to
    reset = not start <= dirty <= end
    if reset:
        dirty = start
    segments = log.segments
    try:
        stop = max(dirty, _first_uncleanable(log, segments, dirty, high_watermark, now_ms))
        delay_ms = _compaction_delay(segments, log.config, dirty, now_ms)
    except OSError as error:
        log.health.fail(f"cannot read {log.directory}", error)
    finished = segments[:-1]
    within = _from(finished, stop) if stop < segments[-1].base_offset else []
    uncleanable = (within or segments[-1:])[0].base_offset
    clean = sum(segment.size for segment in segments if segment.base_offset < dirty)
    first = min(dirty, uncleanable)
    touched = _from(segments, first) if first < uncleanable else []
    cleanable = sum(segment.size for segment in touched if segment.base_offset < uncleanable)
    total = clean + cleanable
    ratio = cleanable / total if total else 0.0
    return Look(dirty, uncleanable, clean, cleanable, ratio, delay_ms, reset)


def is_cleanable(seen: Look, config: LogConfig) -> bool:
    """Whether it is worth it, or has to be."""
    due = seen.compaction_delay_ms > 0 and seen.cleanable_bytes > 0
    return due or seen.ratio > config.min_cleanable_dirty_ratio


def filthiest(looks: Iterable[tuple[Which, Look]]) -> Which | None:
    """The log (whatever stands for it) of which most is dirty, the first of equals; None if there is none."""
    best: tuple[Which, Look] | None = None
    for which, seen in looks:
        if best is None or seen.ratio > best[1].ratio:
            best = which, seen
    return None if best is None else best[0]


def task_of(log: PartitionLog, seen: Look, high_watermark: int, now_ms: int, map_bytes: int) -> Task:
    """All that a cleaning needs to know of this log. `LogOffline` where it cannot be read."""
    config = log.config
    try:
        sources = tuple(
            _source(log, segment, following.base_offset)
            for segment, following in zip(log.segments, log.segments[1:], strict=False)
            if segment.base_offset < seen.first_uncleanable_offset
        )
    except OSError as error:
        log.health.fail(f"cannot read {log.directory}", error)
    return Task(
        directory=log.directory,
        sources=sources,
        first_dirty_offset=seen.first_dirty_offset,
        first_uncleanable_offset=seen.first_uncleanable_offset,
        high_watermark=high_watermark,
        aborted=tuple(log.aborted),
        last_records={
            producer_id: LastRecord(known.batches[-1].last_offset if known.batches else None, known.epoch)
            for producer_id, known in log.producers.by_id.items()
        },
        now_ms=now_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_message_bytes=config.max_message_bytes,
        delete_retention_ms=config.delete_retention_ms,
        map_bytes=map_bytes,
    )  # fmt: skip


# helpers ------------------------------------------------------------------------------------------


def _from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The segment that has `offset` and those behind it."""
    before = sum(1 for segment in segments if segment.base_offset <= offset)
    return segments[max(0, before - 1) :]


def _first_uncleanable(
    log: PartitionLog, segments: Sequence[Segment], dirty: int, high_watermark: int, now_ms: int
) -> int:
    stops = [log.last_stable_offset(high_watermark), segments[-1].base_offset, log.synced_offset]
    stops += [segment.base_offset for segment in list(log._unsynced)[:1]]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (
            segment.base_offset
            for segment in _from(segments[:-1], dirty)
            if segment.largest_timestamp > now_ms - lag_ms
        )
        stops += [base for base in (next(young, None),) if base is not None]
    return min(stops)


def _compaction_delay(segments: Sequence[Segment], config: LogConfig, dirty: int, now_ms: int) -> int:
    """How long the oldest dirty record that is not in the active segment has waited too long."""
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    since = now_ms - config.max_compaction_lag_ms
    waiting = _from(segments[:-1], dirty) if dirty < segments[-1].base_offset else []
    oldest = min((time for time in map(_first_time, waiting) if time > 0), default=since)
    return max(0, since - oldest)


def _first_time(segment: Segment) -> int:
    """The time of a finished segment's first batch, read once."""
    if segment.first_timestamp == NO_TIMESTAMP and segment.size >= HEADER_SIZE:
        try:
            segment.first_timestamp = read_header(segment.file.pread(HEADER_SIZE, 0)).max_timestamp
        except CodecError as error:
            raise DamagedLog(segment.path, 0, str(error)) from None
    return segment.first_timestamp


def _source(log: PartitionLog, segment: Segment, next_offset: int) -> Source:
    return Source(
        segment.base_offset,
        next_offset,
        segment.path,
        segment.size,
        *segment.index_bytes(),
        log._disk.modified_ms(segment.path),
    )
