"""Selects the log to clean next and the range to clean, by Kafka's rules (`LogCleanerManager`, `LogToClean`).

A log has three consecutive parts:

- the clean part, below `first_dirty_offset`, which has each key once;
- the cleanable part: finished segments below `first_uncleanable_offset`;
- the uncleanable part: the active segment, everything from the first open transaction on, records younger
  than `min.compaction.lag.ms`, and data or indexes that are not durable yet. (Kafka may clean the last. Here
  a record is never removed in favour of one that a power cut may lose.)

Of the logs whose cleanable share exceeds `min.cleanable.dirty.ratio`, or whose dirty records are older than
`max.compaction.lag.ms`, the one with the largest share is cleaned first. Nothing here modifies a log, but a
segment's time index or first header may be read for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from konvene.codec.batches import HEADER_SIZE, NO_TIMESTAMP, read_header
from konvene.codec.errors import CodecError
from konvene.log.cleaner.contract import CleaningTask, LastProducerRecord, SourceSegment
from konvene.log.config import LONG_MAX, LogConfig
from konvene.log.errors import DamagedLog
from konvene.log.partition import PartitionLog
from konvene.log.segment import Segment

__all__ = ["LogToClean", "cleaning_task", "filthiest_log", "is_cleanable", "log_to_clean"]

LogT = TypeVar("LogT")


class LogToClean(NamedTuple):
    """The range of a log that can be cleaned, and how urgent that is."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """Base offset of the first segment that is not cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    """Share of the cleanable bytes in all of them; 0 if there are none."""
    compaction_delay_ms: int
    """Time by which the oldest dirty record exceeds `max.compaction.lag.ms`."""
    must_reset_checkpoint: bool
    """The stored cleaner offset is outside the log: `first_dirty_offset` must be stored instead."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes


def log_to_clean(log: PartitionLog, cleaned_to: int | None, high_watermark: int, now_ms: int) -> LogToClean:
    """Compute the cleanable part of a log whose last cleaning ended at `cleaned_to`.

    That part does not exceed `high_watermark`. Raises `LogOffline` if the log cannot be read and `DamagedLog`
    if a batch is invalid.
    """
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
    return LogToClean(dirty, uncleanable, clean, cleanable, ratio, delay_ms, reset)


def is_cleanable(candidate: LogToClean, config: LogConfig) -> bool:
    """Return True if the log is dirty enough, or a dirty record is older than `max.compaction.lag.ms`."""
    due = candidate.compaction_delay_ms > 0 and candidate.cleanable_bytes > 0
    return due or candidate.ratio > config.min_cleanable_dirty_ratio


def filthiest_log(candidates: Iterable[tuple[LogT, LogToClean]]) -> LogT | None:
    """Return the log with the highest dirty ratio (the first of several); None without candidates."""
    best: tuple[LogT, LogToClean] | None = None
    for log, candidate in candidates:
        if best is None or candidate.ratio > best[1].ratio:
            best = log, candidate
    return None if best is None else best[0]


def cleaning_task(
    log: PartitionLog, candidate: LogToClean, high_watermark: int, now_ms: int, map_bytes: int
) -> CleaningTask:
    """Build the task for cleaning a log. Raises `LogOffline` if the log cannot be read.

    `map_bytes` is the memory limit of the offset map.
    """
    config = log.config
    try:
        sources = tuple(
            _source(log, segment, following.base_offset)
            for segment, following in zip(log.segments, log.segments[1:], strict=False)
            if segment.base_offset < candidate.first_uncleanable_offset
        )
    except OSError as error:
        log.health.fail(f"cannot read {log.directory}", error)
    return CleaningTask(
        directory=log.directory,
        sources=sources,
        first_dirty_offset=candidate.first_dirty_offset,
        first_uncleanable_offset=candidate.first_uncleanable_offset,
        high_watermark=high_watermark,
        aborted=tuple(log.aborted),
        last_records={
            producer_id: LastProducerRecord(
                state.batches[-1].last_offset if state.batches else None, state.epoch
            )
            for producer_id, state in log.producers.by_id.items()
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
    """Return the segment that contains `offset` and all later ones."""
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
    """Return by how many ms the oldest dirty record in a finished segment exceeds `max.compaction.lag.ms`.

    Records from the offset `dirty` on are dirty. Returns 0 if none is too old.
    """
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    since = now_ms - config.max_compaction_lag_ms
    waiting = _from(segments[:-1], dirty) if dirty < segments[-1].base_offset else []
    oldest = min((time for time in map(_first_time, waiting) if time > 0), default=since)
    return max(0, since - oldest)


def _first_time(segment: Segment) -> int:
    """Return the timestamp of a finished segment's first batch, which is read from disk only once."""
    if segment.first_timestamp == NO_TIMESTAMP and segment.size >= HEADER_SIZE:
        try:
            segment.first_timestamp = read_header(segment.file.pread(HEADER_SIZE, 0)).max_timestamp
        except CodecError as error:
            raise DamagedLog(segment.path, 0, str(error)) from None
    return segment.first_timestamp


def _source(log: PartitionLog, segment: Segment, next_offset: int) -> SourceSegment:
    return SourceSegment(
        segment.base_offset,
        next_offset,
        segment.path,
        segment.size,
        *segment.index_bytes(),
        log._disk.modified_ms(segment.path),
    )
