"""The common sync in two halves, for whoever can have a file synced without a thread that waits.

`PartitionLog.sync` does all that there may be to do, and whoever calls it waits. Nearly always that is one
file: no segment was finished, none was made, no leader epoch is new. Then `begin` says which one, somebody
has it synced, and `done` says that it was. What is appended meanwhile is for the next sync, as ever.

The log must not be truncated between the two.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.log.disk.files import File
from konvene.log.partition import PartitionLog

__all__ = ["Begun", "begin", "done"]


class Begun(NamedTuple):
    """A sync that is under way."""

    file: File
    descriptor: int
    goal: int
    """Up to here the log is durable once it is done."""


def begin(log: PartitionLog) -> Begun | None:
    """What is to be synced, which is kept open until `done`; None where `sync` has to be called."""
    if log.health.failure is not None or log._unsynced or log._made or log.epochs.dirty:
        return None
    file = log.active_segment.file
    try:
        descriptor = file.begin_sync()
    except OSError as error:
        log.health.fail(f"cannot sync {log.directory}", error)
    return None if descriptor is None else Begun(file, descriptor, log.end_offset)


def done(log: PartitionLog, begun: Begun, error: OSError | None) -> int:
    """The offset up to which the log is durable now. Raises `LogOffline` if the sync failed, and then for
    ever."""
    begun.file.end_sync()
    if log.health.failure is not None:
        raise log.health.refusal()
    if error is not None:
        log.health.fail(f"cannot sync {log.directory}", error)
    log.synced_offset = max(begun.goal, log.synced_offset)
    return log.synced_offset
