"""What a clean close writes down, so that the next start need not look into each partition again.

`.konvene_summary` holds a row for each log: where its segments end, the times and epochs in it, its
producers. It saves reading four files of each partition and decides nothing: a row is believed only while the
folder and its segments have the very sizes and times that it names, and the whole file only beside the mark
of the clean close that carries its checksum. So where somebody else opened the directory (Kafka makes its own
mark), or changed one partition, that is read in the ordinary way, see `opening`. The indexes stay where they
are and are read when first needed; the row has their checksums, and one that does not fit is made again.

Kafka neither reads nor minds the file. Logs with aborted transactions have no row: theirs is a longer story.
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

NAME = ".konvene_summary"
_VERSION = 1
_LARGEST_PRODUCERS = 64 * 1024
"""Bytes of a producers' snapshot above which a log has no row."""


class LeftSegment(NamedTuple):
    """One file of a log as it was left. Times as in the segment."""

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


class LeftLog(NamedTuple):
    """One log as it was left."""

    changed_ns: int
    """When a name in its folder was last made or removed."""
    start_offset: int
    end_offset: int
    epochs: list[list[int]]
    snapshot: str
    """The producers, as in their file, in hexadecimal digits."""
    snapshot_offset: int | None
    segments: list[LeftSegment]


def leave(log: PartitionLog, disk: Disk) -> LeftLog | None:
    """The row of a log of which everything is durable; None where it is to be read again."""
    snapshot = log.producers.snapshot()
    if log.aborted or log.drafts or len(snapshot) > _LARGEST_PRODUCERS:
        return None
    rows = []
    for segment in log.segments:
        size, changed_ns = disk.stamp(segment.path)
        if size != segment.size:
            return None
        rows.append(
            LeftSegment(
                segment.base_offset, segment.next_offset, size, changed_ns, segment.first_timestamp,
                segment.max_timestamp, segment.max_timestamp_offset, segment.unindexed,
                *segment.index_crcs,
            )
        )  # fmt: skip
    epochs = [list(start) for start in log.epochs.starts]
    return LeftLog(
        disk.stamp(log.directory)[1], log.start_offset, log.end_offset, epochs, snapshot.hex(),
        log.snapshot_offset, rows,
    )  # fmt: skip


def take_up(log: PartitionLog, left: LeftLog, disk: Disk, start_offset: int) -> bool:
    """Fill a log from its row; False (and nothing done) where that is not what stands there now."""
    try:
        if disk.stamp(log.directory)[1] != left.changed_ns:
            return False
        segments = []
        for row in left.segments:
            segment = Segment(disk, log.directory, row.base_offset, log.config.index_interval_bytes, 0)
            if disk.stamp(segment.path) != (row.size, row.changed_ns):
                return False
            segment.be_as_left(row)
            segments.append(segment)
    except FileNotFoundError:
        return False
    if not segments or left.start_offset != max(start_offset, segments[0].base_offset):
        return False
    log.segments = segments
    log.start_offset, log.end_offset = left.start_offset, left.end_offset
    log.snapshot_offset = left.snapshot_offset
    log.epochs = LeaderEpochs()
    log.epochs.starts = [(epoch, offset) for epoch, offset in left.epochs]
    if left.snapshot != _NO_PRODUCERS:
        log.producers = Producers.restore(bytes.fromhex(left.snapshot))
    return True


_NO_PRODUCERS = Producers().snapshot().hex()


def encode(rows: Iterable[tuple[str, LeftLog]]) -> bytes:
    """The file: one JSON document, a list for each log."""
    document = {"version": _VERSION, "logs": dict(rows)}
    return json.dumps(document, separators=(",", ":")).encode()


def crc_of(data: bytes) -> int:
    """What the mark of the clean close has to say about the file."""
    return crc32c(data)


def decode(data: bytes) -> dict[str, LeftLog]:
    """The rows by the folder's name; `Malformed` if it is no such file, or of another version."""
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise Malformed(f"a summary of version {document['version']}")
        return {
            name: LeftLog._make([*row[:-1], [LeftSegment(*segment) for segment in row[-1]]])
            for name, row in document["logs"].items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"summary: {error}") from None
