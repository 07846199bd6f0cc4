"""How a log's end is cut back, and what is then still known of it.

Batches go whole. The end is where the last batch ends that stays, as the next opening will find it: cleaning
leaves gaps, so that may be before the offset that was asked for. Segments go from the last one on, for good
before an earlier one is cut, or a crash would leave a gap. The producers are read again from what is left.

The caller has lowered the recovery point, see `LogDirectory.truncate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.batches import NO_PRODUCER_ID
from konvene.log.producers import Producers
from konvene.log.segment import Segment

if TYPE_CHECKING:
    from konvene.log.partition import PartitionLog


def end_if_cut(log: PartitionLog, offset: int) -> tuple[Segment, int, int]:
    """The segment that would be the last one, its size, and the log's end, were it cut at `offset`."""
    segments = log.segments
    last = next((segment for segment in reversed(segments) if segment.base_offset < offset), segments[0])
    found = last.locate(offset)
    size, end = last.size if found is None else found[0], last.base_offset
    if size:
        for header, _ in last.scan(last.offsets.batch_before(size - 1), size):
            end = header.next_offset
    return last, size, end


def truncate(log: PartitionLog, offset: int) -> None:
    """Cut. The caller holds what keeps `sync` out. OSError leaves the log half done: it is offline then."""
    last, size, end = end_if_cut(log, offset)
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
    log.aborted = [gone for gone in log.aborted if gone.last_offset < end]
    log.snapshot_offset = None
    for name in log._disk.listdir(log.directory):
        if name.endswith(".snapshot") and int(name[:20]) > end:
            log._disk.remove(f"{log.directory}/{name}")
    _read_producers(log)


def _read_producers(log: PartitionLog) -> None:
    log.producers = Producers()
    for segment in log.segments:
        kept, segment.aborted = segment.aborted, []
        for header, view in segment.scan(0):
            if header.producer_id > NO_PRODUCER_ID:
                log._replay(header, view)
        segment.aborted = kept
