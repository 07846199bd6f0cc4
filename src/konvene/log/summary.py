"""Writes and restores the summary of a clean shutdown, so that the next start need not read every partition.

`.konvene_summary` holds a row for each log: its segments' ends, sizes and timestamps, its leader epochs and
producers. With it, a start need not read four files of each partition. A row is valid only while the folder
and its segments have the recorded sizes and modification times, and the file is valid only if the
clean-shutdown marker has its checksum. If another program opened the directory (Kafka writes its own marker)
or changed a partition, `opening` reads the files of that partition. Indexes stay in their files and are read
on first use; the row has their checksums, and an index that does not match is rebuilt.

Kafka ignores the file. Logs with aborted transactions get no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from konvene.codec.errors import Malformed
from konvene.log.epochs import LeaderEpochs
from konvene.log.producers import Producers
from konvene.log.segment import Segment

if TYPE_CHECKING:
    from konvene.log.disk.files import Disk
    from konvene.log.partition import PartitionLog

SUMMARY_NAME = ".konvene_summary"
_VERSION = 1
_LARGEST_PRODUCERS = 64 * 1024
"""Logs with a larger producer snapshot, in bytes, get no row."""


class SegmentSummary(NamedTuple):
    """The state of one segment at the clean shutdown; the fields are those of `Segment`."""

    base_offset: int
    next_offset: int
    size: int
    changed_ns: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    unindexed: int
    index_crc: int
    times_crc: int


class LogSummary(NamedTuple):
    """The row of one log: its state at the clean shutdown."""

    changed_ns: int
    """Modification time of the partition's folder, in nanoseconds."""
    start_offset: int
    end_offset: int
    epochs: list[list[int]]
    snapshot: str
    """The producer snapshot, in hexadecimal digits."""
    snapshot_offset: int | None
    segments: list[SegmentSummary]


def summarize(log: PartitionLog, disk: Disk) -> LogSummary | None:
    """Return a closed log's row of the summary; None if the next start has to read the log's files instead.

    It has to for aborted transactions, leftovers of a cleaning, many producers or a changed file.
    """
    snapshot = log.producers.snapshot()
    if log.aborted or log.has_unfinished_files or len(snapshot) > _LARGEST_PRODUCERS:
        return None
    rows = []
    for segment in log.segments:
        size, changed_ns = disk.stamp(segment.path)
        if size != segment.size:
            return None
        rows.append(
            SegmentSummary(
                segment.base_offset, segment.next_offset, size, changed_ns, segment.first_timestamp,
                segment.max_timestamp, segment.max_timestamp_offset, segment.unindexed,
                *segment.index_crcs,
            )
        )  # fmt: skip
    epochs = [list(start) for start in log.epochs.starts]
    return LogSummary(
        disk.stamp(log.directory)[1], log.start_offset, log.end_offset, epochs, snapshot.hex(),
        log.snapshot_offset, rows,
    )  # fmt: skip


def restore_log(log: PartitionLog, summary: LogSummary, disk: Disk, start_offset: int) -> bool:
    """Fill `log` from its row of the summary; return False, with `log` unchanged, if its files differ."""
    try:
        if disk.stamp(log.directory)[1] != summary.changed_ns:
            return False
        segments = []
        for row in summary.segments:
            segment = Segment(disk, log.directory, row.base_offset, log.config.index_interval_bytes, 0)
            if disk.stamp(segment.path) != (row.size, row.changed_ns):
                return False
            segment.restore(row)
            segments.append(segment)
    except FileNotFoundError:
        return False
    if not segments or summary.start_offset != max(start_offset, segments[0].base_offset):
        return False
    log.segments = segments
    log.start_offset, log.end_offset = summary.start_offset, summary.end_offset
    log.snapshot_offset = summary.snapshot_offset
    log.epochs = LeaderEpochs()
    log.epochs.starts = [(epoch, offset) for epoch, offset in summary.epochs]
    if summary.snapshot != _NO_PRODUCERS:
        log.producers = Producers.restore(bytes.fromhex(summary.snapshot))
    return True


_NO_PRODUCERS = Producers().snapshot().hex()


def encode_summary(rows: Iterable[tuple[str, LogSummary]]) -> bytes:
    """Encode the logs' rows, given as `(folder name, row)`, as the summary file: one JSON document."""
    document = {"version": _VERSION, "logs": dict(rows)}
    return json.dumps(document, separators=(",", ":")).encode()


def summary_crc(data: bytes) -> int:
    """Return the checksum of the summary that the clean-shutdown marker records."""
    return crc32c(data)


def decode_summary(data: bytes) -> dict[str, LogSummary]:
    """Decode the summary file to rows by folder name. Raises `Malformed` for a wrong version or content."""
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise Malformed(f"a summary of version {document['version']}")
        return {
            name: LogSummary._make([*row[:-1], [SegmentSummary(*segment) for segment in row[-1]]])
            for name, row in document["logs"].items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"summary: {error}") from None
