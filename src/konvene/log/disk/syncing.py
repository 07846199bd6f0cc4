"""Splits a log's sync into two halves, for callers that sync a file asynchronously (io_uring).

`PartitionLog.sync` blocks. Nearly always only one file needs a sync, because no segment was finished or
created and no leader epoch is new. Then `begin_sync` returns that file's descriptor, the caller lets the
kernel sync it, and `finish_sync` records the result. Records appended meanwhile wait for the next sync.

The log must not be truncated between the two calls.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.log.disk.files import File
from konvene.log.partition import PartitionLog

__all__ = ["PendingSync", "begin_sync", "finish_sync"]


class PendingSync(NamedTuple):
    """A sync of the active segment's file that `begin_sync` has prepared and `finish_sync` completes."""

    file: File
    descriptor: int
    goal: int
    """Offset up to which the log is durable when the sync has finished."""


def begin_sync(log: PartitionLog) -> PendingSync | None:
    """Return the file to sync, open until `finish_sync`; None if the caller must use `PartitionLog.sync`.

    It must if more than one file needs a sync, the file has no descriptor, or the directory is offline.
    Raises `LogOffline` if the disk fails.
    """
    if log.health.failure is not None or log._unsynced or log._directory_unsynced or log.epochs.dirty:
        return None
    file = log.active_segment.file
    try:
        descriptor = file.begin_sync()
    except OSError as error:
        log.health.fail(f"cannot sync {log.directory}", error)
    return None if descriptor is None else PendingSync(file, descriptor, log.end_offset)


def finish_sync(log: PartitionLog, begun: PendingSync, error: OSError | None) -> int:
    """Record the result of the sync, which failed if there is an `error`; return the end of the durable log.

    Raises `LogOffline` if the sync failed or the directory is offline.
    """
    begun.file.end_sync()
    if log.health.failure is not None:
        raise log.health.refusal()
    if error is not None:
        log.health.fail(f"cannot sync {log.directory}", error)
    log.synced_offset = max(begun.goal, log.synced_offset)
    return log.synced_offset
