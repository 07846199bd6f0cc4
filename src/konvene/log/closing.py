"""Writes the closing files of a log, which make its next opening fast: indexes, producer snapshot, leader
epochs.

A file that is up to date is not written again. Kafka loads a log from the same files. `PartitionLog.sync`
makes a log durable while it is in use; `summary` records all logs of a directory together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.log.cleaner.recovery import remove_unfinished_files
from konvene.log.segment import segment_name

if TYPE_CHECKING:
    from konvene.log.partition import PartitionLog


def has_closing_files(log: PartitionLog) -> bool:
    """Return True if all data is durable and the files that `write_closing_files` writes are up to date.

    These are the indexes, the producer snapshot and the leader epochs, which make the next opening fast.
    """
    return (
        log.synced_offset == log.end_offset
        and not (log._unsynced or log._directory_unsynced or log.epochs.dirty)
        and log.active_segment.has_indexes
        and log.snapshot_offset == (log.end_offset or None)
    )


def write_closing_files(log: PartitionLog, *, durably: bool = True) -> None:
    """Write the closing files that are missing or outdated: indexes, producer snapshot and leader epochs.

    They make the log's next opening fast. With `durably=False` nothing is synced: the caller syncs the file
    system, or calls `invalidate_closing_files` if that fails. Raises `LogOffline` if the disk fails.
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


def remove_cleaning_leftovers(log: PartitionLog) -> None:
    """Delete replaced segments and unfinished files of a cleaning. Raises `LogOffline` if the disk fails."""
    try:
        log.cleaning = None
        if log.has_unfinished_files:
            remove_unfinished_files(log._disk, log.directory)
            log.has_unfinished_files = False
        for segment in list(log.replaced):
            segment.remove()
            del log.replaced[segment]
    except OSError as error:
        log.health.fail(f"cannot close {log.directory}", error)


def invalidate_closing_files(log: PartitionLog) -> None:
    """Treat the files of `write_closing_files` as lost after a failed sync: they will be written again."""
    log.active_segment.forget_written()
    log.snapshot_offset, log.epochs.dirty = None, True
