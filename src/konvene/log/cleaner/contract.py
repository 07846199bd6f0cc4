"""What is said between those who choose a log, clean it, and put the result in place.

A `Task` is all that a cleaning needs to know: it can be carried to another process. What a cleaning tells are
`Progress`, a `Group` for each segment that it has written, and in the end its `Stats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konvene.log.producers import AbortedTransaction

CLEANED = ".cleaned"
"""Behind the names of files that are being written; removed where they are found at a start."""
SWAP = ".swap"
"""Behind the names of files that are whole and take the place of others; a start goes on with it."""
DELETED = ".deleted"
"""Behind the names of files that nobody finds any more; who still reads them may."""


class Source(NamedTuple):
    """A segment as it is to be read."""

    base_offset: int
    next_offset: int
    """Behind its last batch, or where the next segment begins."""
    path: str
    """Of its `.log` file."""
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


class LastRecord(NamedTuple):
    """The last that was heard of a producer: its batch stays, even empty, for what it says of sequences."""

    last_data_offset: int | None
    """Of its last batch with records; None where there is only a marker left."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Task:
    """One cleaning of one log. Offsets as in Kafka's `LogToClean`."""

    directory: str
    sources: tuple[Source, ...]
    """All segments from the first one on that begin before `first_uncleanable_offset`."""
    first_dirty_offset: int
    """What is before it has been cleaned."""
    first_uncleanable_offset: int
    """Nothing from there on is read: the active segment, open transactions, what is too young."""
    high_watermark: int
    aborted: tuple[AbortedTransaction, ...]
    last_records: Mapping[int, LastRecord]
    now_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    delete_retention_ms: int
    map_bytes: int
    """What the map of keys may take."""


class Progress(NamedTuple):
    """So many bytes were read and written since it was told last."""

    bytes_read: int
    bytes_written: int


class Group(NamedTuple):
    """A new segment, whole and durable under `.cleaned` names, for those that it takes the place of."""

    base_offset: int
    next_offset: int
    """Where the first segment begins that is not replaced, or behind the last batch that was read."""
    replaces: tuple[int, ...]
    """The base offsets of the segments that it was made of, in their order; the first is its own."""
    size: int
    modified_ms: int


@dataclass(slots=True)
class Stats:
    """What a cleaning did, as Kafka counts it (`CleanerStats`)."""

    end_offset: int = 0
    """The first offset that is not clean now."""
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    """Records without a key: they go."""
    tombstones_removed: int = 0
    markers_removed: int = 0
    buffer_utilization: float = 0.0
    """Of `map_bytes`, from 0 to 1."""
    index_s: float = 0.0
    elapsed_s: float = 0.0
    segments: list[Group] = field(default_factory=list)
