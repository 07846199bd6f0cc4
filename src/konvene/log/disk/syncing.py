"""Splits the common sync into two halves, for callers that sync a file without a waiting thread (io_uring).

`PartitionLog.sync` does everything and blocks. Nearly always only one file needs a sync: no segment was
finished or created, and no leader epoch is new. Then `begin_sync` returns its descriptor, the caller has it
synced, and `finish_sync` records it. Records appended meanwhile wait for the next sync.

The log must not be truncated between the two calls.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.log.disk.files import File
from konvene.log.partition import PartitionLog

__all__ = ["PendingSync", "begin_sync", "finish_sync"]


class PendingSync(NamedTuple):
    """A sync in progress."""

    file: File
    descriptor: int
    goal: int
    """Offset up to which the log is durable when the sync has finished."""


def begin_sync(log: PartitionLog) -> PendingSync | None:
    """Return the file to sync, open until `finish_sync`, or None if `sync` has to be called."""
    if log.health.failure is not None or log._unsynced or log._made or log.epochs.dirty:
        return None
    file = log.active_segment.file
    try:
        descriptor = file.begin_sync()
    except OSError as error:
        log.health.fail(f"cannot sync {log.directory}", error)
    return None if descriptor is None else PendingSync(file, descriptor, log.end_offset)


def finish_sync(log: PartitionLog, begun: PendingSync, error: OSError | None) -> int:
    """Record the end of the sync; return the offset up to which the log is durable. Raises `LogOffline`,
    permanently, if it failed."""
    begun.file.end_sync()
    if log.health.failure is not None:
        raise log.health.refusal()
    if error is not None:
        log.health.fail(f"cannot sync {log.directory}", error)
    log.synced_offset = max(begun.goal, log.synced_offset)
    return log.synced_offset
