"""Truncates a log's end to an offset.

Whole batches are removed. The new end is the end of the last batch that remains, as the next opening will
find it; it can lie before the requested offset because cleaning leaves gaps. Segments are removed durably
from the last one backwards before an earlier one is truncated, so that a crash leaves no gap. The producer
state is rebuilt from the remaining batches. The caller lowers the recovery point first, see
`LogDirectory.truncate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.batches import NO_PRODUCER_ID
from konvene.log.producers import Producers
from konvene.log.segment import Segment

if TYPE_CHECKING:
    from konvene.log.partition import PartitionLog


def end_after_truncation(log: PartitionLog, offset: int) -> tuple[Segment, int, int]:
    """Return the log's end after a truncation to `offset`, without truncating.

    Returns `(last remaining segment, its size in bytes, end offset of the log)`.
    """
    segments = log.segments
    last = next((segment for segment in reversed(segments) if segment.base_offset < offset), segments[0])
    found = last.locate(offset)
    size, end = last.size if found is None else found[0], last.base_offset
    if size:
        for header, _ in last.scan(last.offsets.batch_before(size - 1), size):
            end = header.next_offset
    return last, size, end


def truncate(log: PartitionLog, offset: int) -> None:
    """Remove all batches whose last offset is at or above `offset`. The caller holds `_sync_lock`.

    An OSError leaves the log half truncated, and the caller takes the directory offline.
    """
    last, size, end = end_after_truncation(log, offset)
    while log.segments[-1] is not last:
        dropped = log.segments.pop()
        if dropped in log._unsynced:
            log._unsynced.remove(dropped)
        dropped.remove()
    log._disk.sync_directory(log.directory)
    log._active = last
    if last in log._unsynced:
        log._unsynced.remove(last)
    if size < last.size:
        last.truncate(size, end)
    last.next_offset = end
    last.file.sync()
    log.end_offset = max(end, log.start_offset)
    log.synced_offset = min(log.synced_offset, log.end_offset)
    log.epochs.truncate_end(end)
    log.aborted = [aborted for aborted in log.aborted if aborted.last_offset < end]
    log.snapshot_offset = None
    for name in log._disk.listdir(log.directory):
        if name.endswith(".snapshot") and int(name[:20]) > end:
            log._disk.remove(f"{log.directory}/{name}")
    _rebuild_producers(log)


def _rebuild_producers(log: PartitionLog) -> None:
    log.producers = Producers()
    for segment in log.segments:
        kept, segment.aborted = segment.aborted, []
        for header, view in segment.scan(0):
            if header.producer_id > NO_PRODUCER_ID:
                log._replay_producer(header, view)
        segment.aborted = kept
