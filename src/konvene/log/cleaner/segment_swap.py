"""Replaces segments of a log in use by a cleaned segment, atomically.

    begin_cleaning   deletes leftovers of an earlier cleaning and raises the recovery point to the end of the
                     range to clean
    prepare_swap     renames `.cleaned` to `.swap`, durably: from now on a start completes the swap
    swap_segments    on the appending thread: renames the old files to `.deleted` and the new ones to their
                     final names; from then on lookups find the new segment
    sync_swap        makes the renames durable
    finish_cleaning  after the last group; `abort_cleaning` instead if the cleaning is cancelled

`sync_swap` may come late or not at all: after a crash the next start repeats the same steps. Open readers may
use the old segments for `file.delete.delay.ms`; then `remove_deleted` deletes their files, and a reader that
is slower continues in the new segment.

A cleaning leaves gaps between offsets, so the recovery point must be above them first: above the recovery
point a gap between two segments counts as a lost file, and the log cannot be opened.

A disk error in `swap_segments`, `sync_swap` or `remove_deleted` takes the directory offline, as in
`partition`: the log in memory still has the old segments, and the next start completes the swap. After an
error in `prepare_swap` the next start may either complete or undo the swap, so the caller takes the directory
offline as well (`log.health.fail`). After an error in an earlier step, `abort_cleaning` is enough.
`swap_durably` runs `prepare_swap`, `swap_segments` and `sync_swap` at once.
"""

from __future__ import annotations

from konvene.codec.batches import HEADER_SIZE, read_header
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP, CleanedSegment, CleaningTask
from konvene.log.cleaner.recovery import INDEXES, remove_unfinished_files
from konvene.log.directory import LogDirectory, TopicPartition
from konvene.log.disk.files import Disk
from konvene.log.index import BadIndex, OffsetIndex
from konvene.log.partition import PartitionLog
from konvene.log.producers import read_aborted
from konvene.log.segment import Segment

__all__ = [
    "abort_cleaning",
    "begin_cleaning",
    "finish_cleaning",
    "prepare_swap",
    "remove_deleted",
    "swap_durably",
    "swap_segments",
    "sync_swap",
]  # fmt: skip


def begin_cleaning(directory: LogDirectory, partition: TopicPartition, task: CleaningTask) -> None:
    """Mark a log as being cleaned, which stops retention until the cleaning ends.

    Runs on the appending thread. Raises ValueError if it is being cleaned already and `LogOffline` if the
    disk fails.
    """
    log = directory.logs[partition]
    if log.health.failure is not None:
        raise log.health.refusal()
    if log.cleaning is not None:
        raise ValueError(f"{partition} is being cleaned already")
    try:
        remove_unfinished_files(directory.disk, log.directory)
    except OSError as error:
        log.health.fail(f"cannot tidy {log.directory}", error)
    directory.raise_recovery_point(partition, task.first_uncleanable_offset)
    log.cleaning, log.has_unfinished_files = task, True


def finish_cleaning(log: PartitionLog) -> None:
    """Mark the log as no longer being cleaned, so that retention continues."""
    log.cleaning = None


def abort_cleaning(log: PartitionLog) -> None:
    """Cancel the cleaning and delete its `.cleaned` and `.swap` files; the log is unchanged.

    Raises `LogOffline` if the disk fails.
    """
    if log.health.failure is None:
        try:
            remove_unfinished_files(log._disk, log.directory)
        except OSError as error:
            log.health.fail(f"cannot tidy {log.directory}", error)
    log.cleaning = None


def prepare_swap(disk: Disk, directory: str, group: CleanedSegment) -> None:
    """Rename the new segment's files to `.swap`, durably: from now on a start completes the swap.

    May run on any thread. For its OSError see the module docstring.
    """
    stem = f"{directory}/{group.base_offset:020d}"
    last = group.replaces[-1]
    end = _end(disk, stem, group)
    if last != group.base_offset and end <= last:
        # Kafka replaces the segments that begin below the new end; the empty file marks the last one as well.
        _create_empty_swaps(disk, f"{directory}/{last:020d}", (".log", *INDEXES))
    if not disk.exists(f"{stem}.txnindex{CLEANED}"):
        _create_empty_swaps(disk, stem, (".txnindex",))
    for ending in (".log", *INDEXES):
        if disk.exists(f"{stem}{ending}{CLEANED}"):
            disk.rename(f"{stem}{ending}{CLEANED}", f"{stem}{ending}{SWAP}")
    disk.sync_directory(directory)


def swap_segments(log: PartitionLog, group: CleanedSegment) -> list[Segment]:
    """Replace old segments of `log` by the prepared new one; return the old ones.

    If the log was truncated or deleted since it was cleaned, deletes the new segment and returns an empty
    list. Raises `LogOffline` if the disk fails.
    """
    if log.health.failure is not None:
        raise log.health.refusal()
    at = _position(log, group)
    try:
        if at is None:
            remove_unfinished_files(log._disk, log.directory)
            return []
        old = log.segments[at : at + len(group.replaces)]
        following = log.segments[at + len(old)]
        for segment in old:
            segment.rename_with_suffix(_free_suffix(log, segment), with_snapshot=segment is not old[0])
        new = _rename_and_open(log, group, following)
    except OSError as error:
        log.health.fail(f"cannot put a cleaned segment in place in {log.directory}", error)
    others = [
        aborted for aborted in log.aborted if not new.base_offset <= aborted.last_offset < new.next_offset
    ]
    log.aborted = sorted(others + new.aborted, key=lambda aborted: aborted.last_offset)
    log.segments = [*log.segments[:at], new, *log.segments[at + len(old) :]]
    log.replaced.update(dict.fromkeys(old))
    return old


def swap_durably(log: PartitionLog, group: CleanedSegment) -> list[Segment]:
    """Run `prepare_swap`, `swap_segments` and `sync_swap`. Raises `LogOffline` if the disk fails."""
    if log.health.failure is not None:
        raise log.health.refusal()
    try:
        prepare_swap(log._disk, log.directory, group)
    except OSError as error:
        log.health.fail(f"cannot rename in {log.directory}", error)
    old = swap_segments(log, group)
    sync_swap(log)
    return old


def sync_swap(log: PartitionLog) -> None:
    """Make the renames of `swap_segments` durable.

    May run on any thread. Raises `LogOffline` if the disk fails. Where a replaced segment's indexes were in
    memory, the new segment's are read here, so that the next reader need not wait for them.
    """
    try:
        log._disk.sync_directory(log.directory)
        used = {segment.base_offset for segment in list(log.replaced) if segment.has_read_indexes}
        for segment in log.segments:
            if segment.base_offset in used and not segment.has_read_indexes:
                segment.load_indexes()
    except OSError as error:
        log.health.fail(f"cannot sync {log.directory}", error)


def remove_deleted(log: PartitionLog, now_ms: int) -> int:
    """Delete the files of replaced segments; return how many segments were deleted.

    A segment's delay, `file.delete.delay.ms`, begins with the first call that finds it. May run on any
    thread, one call at a time. Raises `LogOffline` if the disk fails.
    """
    count = 0
    for segment, since_ms in list(log.replaced.items()):
        if since_ms is None:
            log.replaced[segment] = since_ms = now_ms
        if now_ms - since_ms < log.config.file_delete_delay_ms or log.health.failure is not None:
            continue
        try:
            segment.remove()
        except OSError as error:
            log.health.fail(f"cannot delete from {log.directory}", error)
        del log.replaced[segment]
        count += 1
    return count


# helpers ------------------------------------------------------------------------------------------


def _end(disk: Disk, stem: str, group: CleanedSegment) -> int:
    """Return the end offset of the new segment's last batch; its base offset if it has no batch."""
    path = f"{stem}.log{CLEANED}"
    size, end = disk.size(path), group.base_offset
    try:
        index = OffsetIndex.load(group.base_offset, disk.read(f"{stem}.index{CLEANED}"), size)
        position = index.batch_before(size)
    except (FileNotFoundError, BadIndex):
        position = 0
    file = disk.open(path)
    try:
        while position < size:
            header = read_header(file.pread(HEADER_SIZE, position))
            end, position = header.next_offset, position + header.size
    finally:
        file.close()
    return end


def _create_empty_swaps(disk: Disk, stem: str, endings: tuple[str, ...]) -> None:
    """Create an empty `.swap` file for each file `stem` + ending that exists.

    If a crash follows, these files make the next start delete the segment at the path `stem`.
    """
    for ending in endings:
        if disk.exists(stem + ending):
            disk.open(f"{stem}{ending}{SWAP}", create=True).close()


def _position(log: PartitionLog, group: CleanedSegment) -> int | None:
    """Return the index in `log.segments` of the first one to replace; None after a truncation or deletion."""
    bases = [segment.base_offset for segment in log.segments]
    if log.cleaning is None or group.base_offset not in bases:
        return None
    at = bases.index(group.base_offset)
    behind = at + len(group.replaces)
    return at if tuple(bases[at:behind]) == group.replaces and behind < len(bases) else None


def _free_suffix(log: PartitionLog, segment: Segment) -> str:
    """Return a `.deleted` suffix that is not used by an earlier segment of the same base offset."""
    suffix, number = DELETED, 0
    while log._disk.exists(segment.path + suffix):
        number += 1
        suffix = f".{number}{DELETED}"
    return suffix


def _rename_and_open(log: PartitionLog, group: CleanedSegment, following: Segment) -> Segment:
    """Rename the new files to their final names and open the segment, which ends where `following` begins."""
    disk, stem = log._disk, f"{log.directory}/{group.base_offset:020d}"
    if len(group.replaces) > 1:
        for ending in (*INDEXES, ".log"):
            path = f"{log.directory}/{group.replaces[-1]:020d}{ending}{SWAP}"
            if disk.exists(path):
                disk.remove(path)
    aborted = []
    for ending in (".log", *INDEXES):
        path = f"{stem}{ending}"
        if ending == ".txnindex" and disk.exists(path + SWAP):
            aborted = read_aborted(disk.read(path + SWAP))
            if not aborted:
                disk.remove(path + SWAP)
                continue
        if disk.exists(path + SWAP):
            disk.rename(path + SWAP, path)
    new = Segment.open(disk, log.directory, group.base_offset, log.config.index_interval_bytes)
    new.next_offset, new.aborted = following.base_offset, aborted
    return new
