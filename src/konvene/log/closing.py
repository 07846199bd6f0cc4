"""How the log of one partition is left: what stands beside it, so that the next opening reads little.

That is the active segment's indexes, the producers and the leader epochs, each written only where it is not
there already. Kafka loads a log from the same files. What `sync` makes durable while a log is in use is the
business of `partition`; what the directory writes down of all its logs together, that of `summary`.
"""

from __future__ import annotations

from konvene.log.cleaner.recovery import remove_drafts
from konvene.log.partition import PartitionLog
from konvene.log.segment import segment_name


def is_written_down(log: PartitionLog) -> bool:
    """Whether all is durable, and beside the log stands what the next opening wants to know."""
    return (
        log.synced_offset == log.end_offset
        and not (log._unsynced or log._made or log.epochs.dirty)
        and log.active_segment.has_indexes
        and log.snapshot_offset == (log.end_offset or None)
    )


def write_down(log: PartitionLog, *, durably: bool = True) -> None:
    """Write what is not there yet. `LogOffline` where the disk fails.

    Not `durably`: the caller makes it so, or calls `forget_written`.
    """
    active, old, end = log.active_segment, log.snapshot_offset, log.end_offset
    try:
        if end and old != end:
            active.snapshot = log.producers.snapshot()
        if active.snapshot is not None or not active.has_indexes:
            active.write_indexes(durably=durably)
        log._write_epochs(durably=durably)
        log.snapshot_offset = end or None
        if old is not None and old != end and all(old != each.base_offset for each in log.segments):
            stray = f"{log.directory}/{segment_name(old, '.snapshot')}"
            if log._disk.exists(stray):
                log._disk.remove(stray)
    except OSError as error:
        log.health.fail(f"cannot close {log.directory}", error)


def tidy(log: PartitionLog) -> None:
    """Remove what a cleaning has replaced, or left half done. `LogOffline` where the disk fails."""
    try:
        log.cleaning = None
        if log.drafts:
            remove_drafts(log._disk, log.directory)
            log.drafts = False
        for segment in list(log.aside):
            segment.remove()
            del log.aside[segment]
    except OSError as error:
        log.health.fail(f"cannot close {log.directory}", error)


def forget_written(log: PartitionLog) -> None:
    """What `write_down` wrote may not be durable: it is to be written again."""
    log.active_segment.forget_written()
    log.snapshot_offset, log.epochs.dirty = None, True
