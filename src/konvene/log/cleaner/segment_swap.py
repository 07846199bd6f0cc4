"""Puts a cleaned segment in the place of those that it was made of, while the log is in use: all or nothing.

    begin         before a cleaning: nothing is left of an earlier one, the recovery point is behind it all
    ready         `.cleaned` becomes `.swap`, durably: from here on a start goes on with it, see `completing`
    put_in_place  one step on the thread that appends: the old files become `.deleted`, the new ones get their
                  names, and who asks the log for a segment gets the new one
    settle        what was renamed is durable
    finish        after the last group; `give_up` instead, when there will be no last one

`settle` may be left out, or late: a crash before it makes the next start do the same steps again. The old
segments stay readable for who is reading them, for `file.delete.delay.ms`, then `remove_deleted` removes
their files; a reader that is slower than that goes on in the new segment.

The recovery point has to be behind the gaps that a cleaning leaves: behind it, a gap between two segments
is what a lost file looks like, and an opening refuses it.

An error of the disk in `put_in_place`, `settle` or `remove_deleted` takes the directory out of use, as in
`partition`: the log in memory is then the old one, and the next start completes the new one. An error in
`ready` leaves it open which of both a start would find: whoever called it takes the directory out of use as
well (`log.health.fail`). Before that, `give_up` is enough, and the log stays as it was. `swap` does all of it
at once, for those whom nobody waits for.
"""

from __future__ import annotations

from konvene.codec.batches import HEADER_SIZE, read_header
from konvene.log.cleaner.contract import CLEANED, DELETED, SWAP, Group, Task
from konvene.log.cleaner.recovery import INDEXES, remove_drafts
from konvene.log.directory import LogDirectory, TopicPartition
from konvene.log.disk.files import Disk
from konvene.log.index import BadIndex, OffsetIndex
from konvene.log.partition import PartitionLog
from konvene.log.producers import read_aborted
from konvene.log.segment import Segment

__all__ = [
    "begin", "discard", "finish", "give_up", "put_in_place", "ready", "remove_deleted", "settle", "swap",
]  # fmt: skip


def begin(directory: LogDirectory, partition: TopicPartition, task: Task) -> None:
    """A cleaning of this log begins; retention waits for its end. On the thread that appends.

    ValueError if there is one already, `LogOffline` where the disk fails."""
    log = directory.logs[partition]
    if log.health.failure is not None:
        raise log.health.refusal()
    if log.cleaning is not None:
        raise ValueError(f"{partition} is being cleaned already")
    try:
        remove_drafts(directory.disk, log.directory)
    except OSError as error:
        log.health.fail(f"cannot tidy {log.directory}", error)
    directory.reach(partition, task.first_uncleanable_offset)
    log.cleaning, log.drafts = task, True


def finish(log: PartitionLog) -> None:
    """The cleaning has ended, one way or the other."""
    log.cleaning = None


def give_up(log: PartitionLog) -> None:
    """The cleaning has failed, or is not wanted any more: what it wrote goes, the log is as it is.

    `LogOffline` where the disk fails."""
    if log.health.failure is None:
        try:
            discard(log._disk, log.directory)
        except OSError as error:
            log.health.fail(f"cannot tidy {log.directory}", error)
    log.cleaning = None


def discard(disk: Disk, directory: str) -> None:
    """Remove what a cleaning wrote and will not be put in place. Not where `put_in_place` failed. OSError."""
    remove_drafts(disk, directory)


def ready(disk: Disk, directory: str, group: Group) -> None:
    """The new segment is to be: durable on return. From any thread. OSError: see the top of this file."""
    stem = f"{directory}/{group.base_offset:020d}"
    last = group.replaces[-1]
    end = _end(disk, stem, group)
    if last != group.base_offset and end <= last:
        # Kafka takes the new segment to replace what begins before its end. This one says what else goes.
        _put_empty(disk, f"{directory}/{last:020d}", (".log", *INDEXES))
    if not disk.exists(f"{stem}.txnindex{CLEANED}"):
        _put_empty(disk, stem, (".txnindex",))
    for ending in (".log", *INDEXES):
        if disk.exists(f"{stem}{ending}{CLEANED}"):
            disk.rename(f"{stem}{ending}{CLEANED}", f"{stem}{ending}{SWAP}")
    disk.sync_directory(directory)


def put_in_place(log: PartitionLog, group: Group) -> list[Segment]:
    """Exchange the segments of a group that is `ready`; the old ones.

    None, and the new segment is discarded, where the log is not any more what was cleaned: it has been cut or
    deleted meanwhile. `LogOffline` where the disk fails."""
    if log.health.failure is not None:
        raise log.health.refusal()
    at = _place(log, group)
    try:
        if at is None:
            discard(log._disk, log.directory)
            return []
        old = log.segments[at : at + len(group.replaces)]
        following = log.segments[at + len(old)]
        for segment in old:
            segment.set_aside(_free_suffix(log, segment), with_snapshot=segment is not old[0])
        new = _take_names(log, group, following)
    except OSError as error:
        log.health.fail(f"cannot put a cleaned segment in place in {log.directory}", error)
    others = [gone for gone in log.aborted if not new.base_offset <= gone.last_offset < new.next_offset]
    log.aborted = sorted(others + new.aborted, key=lambda gone: gone.last_offset)
    log.segments = [*log.segments[:at], new, *log.segments[at + len(old) :]]
    log.aside.update(dict.fromkeys(old))
    return old


def swap(log: PartitionLog, group: Group) -> list[Segment]:
    """`ready`, `put_in_place` and `settle`. `LogOffline` where the disk fails."""
    if log.health.failure is not None:
        raise log.health.refusal()
    try:
        ready(log._disk, log.directory, group)
    except OSError as error:
        log.health.fail(f"cannot rename in {log.directory}", error)
    old = put_in_place(log, group)
    settle(log)
    return old


def settle(log: PartitionLog) -> None:
    """Make the new names durable. From any thread. `LogOffline` where the disk fails.

    Indexes that somebody used are read again here, so that the next reader need not wait for that."""
    try:
        log._disk.sync_directory(log.directory)
        used = {segment.base_offset for segment in list(log.aside) if segment.has_read_indexes}
        for segment in log.segments:
            if segment.base_offset in used and not segment.has_read_indexes:
                segment.load_indexes()
    except OSError as error:
        log.health.fail(f"cannot sync {log.directory}", error)


def remove_deleted(log: PartitionLog, now_ms: int) -> int:
    """Remove the files of replaced segments that have been so for `file.delete.delay.ms`; how many.

    The time counts from the first call that finds them. From any thread, one at a time. `LogOffline`."""
    count = 0
    for segment, since_ms in list(log.aside.items()):
        if since_ms is None:
            log.aside[segment] = since_ms = now_ms
        if now_ms - since_ms < log.config.file_delete_delay_ms or log.health.failure is not None:
            continue
        try:
            segment.remove()
        except OSError as error:
            log.health.fail(f"cannot delete from {log.directory}", error)
        del log.aside[segment]
        count += 1
    return count


# helpers ------------------------------------------------------------------------------------------


def _end(disk: Disk, stem: str, group: Group) -> int:
    """Behind the last batch that was kept, from its place in the index on; the base offset if none was."""
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


def _put_empty(disk: Disk, stem: str, endings: tuple[str, ...]) -> None:
    """Empty `.swap` files for those that are there and must not stay."""
    for ending in endings:
        if disk.exists(stem + ending):
            disk.open(f"{stem}{ending}{SWAP}", create=True).close()


def _place(log: PartitionLog, group: Group) -> int | None:
    """Which segment is the first of the group; None if it is not there as it was cleaned."""
    bases = [segment.base_offset for segment in log.segments]
    if log.cleaning is None or group.base_offset not in bases:
        return None
    at = bases.index(group.base_offset)
    behind = at + len(group.replaces)
    return at if tuple(bases[at:behind]) == group.replaces and behind < len(bases) else None


def _free_suffix(log: PartitionLog, segment: Segment) -> str:
    """A segment of this base offset may have been set aside before, and somebody may still read it."""
    suffix, number = DELETED, 0
    while log._disk.exists(segment.path + suffix):
        number += 1
        suffix = f".{number}{DELETED}"
    return suffix


def _take_names(log: PartitionLog, group: Group, following: Segment) -> Segment:
    """Give the new files their names, and open them."""
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
    new = Segment.found(disk, log.directory, group.base_offset, log.config.index_interval_bytes)
    new.next_offset, new.aborted = following.base_offset, aborted
    return new
