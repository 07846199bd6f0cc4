"""The input and output of a cleaning: its task, progress reports, cleaned segments and statistics.

A `CleaningTask` holds everything that a cleaning needs, so that it can be sent to another process. A cleaning
yields `CleanerProgress`, a `CleanedSegment` for each segment that it has written, and returns its
`CleanerStats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.log.producers import AbortedTransaction

CLEANED = ".cleaned"
"""Suffix of files that are being written; a start deletes them."""
SWAP = ".swap"
"""Suffix of complete files that replace others; a start completes the swap."""
DELETED = ".deleted"
"""Suffix of replaced files; open readers may go on using them."""


class SourceSegment(NamedTuple):
    """A segment of the log to clean, with its files' sizes and modification time."""

    base_offset: int
    next_offset: int
    """End of its last batch, or the base offset of the next segment."""
    path: str
    """Path of its `.log` file."""
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


class LastProducerRecord(NamedTuple):
    """The last batch of a producer, which a cleaning must keep because it has the producer's sequence number.

    If none of its records remains, it stays as an empty batch.
    """

    last_data_offset: int | None
    """Last offset of its last batch with records; None if only a marker is left."""
    epoch: int


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """The input of one cleaning of one log: its segments, offsets, producers and configuration."""

    directory: str
    sources: tuple[SourceSegment, ...]
    """All segments that begin below `first_uncleanable_offset`, from the first on."""
    first_dirty_offset: int
    """Everything below it has been cleaned."""
    first_uncleanable_offset: int
    """Nothing from it on is read: the active segment, open transactions, records that are too young."""
    high_watermark: int
    aborted: tuple[AbortedTransaction, ...]
    last_records: Mapping[int, LastProducerRecord]
    now_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    delete_retention_ms: int
    map_bytes: int
    """Memory limit of the offset map in bytes."""


class CleanerProgress(NamedTuple):
    """A progress report of a cleaning: the numbers of bytes read and written since the last report."""

    bytes_read: int
    bytes_written: int


class CleanedSegment(NamedTuple):
    """A new segment, complete and durable under `.cleaned` names, that will replace one or more segments."""

    base_offset: int
    next_offset: int
    """Base offset of the next segment that is not replaced, or the end of the last batch read."""
    replaces: tuple[int, ...]
    """Base offsets of the replaced segments, ascending; the first is also its own."""
    size: int
    modified_ms: int


@dataclass(slots=True)
class CleanerStats:
    """Statistics of a cleaning, with the counters of Kafka's `CleanerStats`."""

    end_offset: int = 0
    """First offset that is not clean after this cleaning."""
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key, which are removed."""
    tombstones_removed: int = 0
    markers_removed: int = 0
    buffer_utilization: float = 0.0
    """Used share of `map_bytes`, from 0 to 1."""
    index_s: float = 0.0
    elapsed_s: float = 0.0
    segments: list[CleanedSegment] = field(default_factory=list)
