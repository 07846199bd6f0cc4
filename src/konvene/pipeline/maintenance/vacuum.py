"""Deletes files that no table needs any more, and shortens the logs of tables.

A step removes files from its tables but not from the disk, since readers of older versions still use them.
`vacuum` deletes those that were removed longer ago than the retention, and files in no log (of steps that
failed) that are older than it. Then it writes checkpoints, and deletes entries before them that are older.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from konvene.pipeline.warehouse.delta import DeltaTables
from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = ["MAX_RETENTION", "Deleted", "vacuum"]

MAX_RETENTION = timedelta(days=7)
"""Logs name removed files for this long (`delta.deletedFileRetentionDuration`)."""


class Deleted(NamedTuple):
    """A file that was deleted; `path` is relative to the warehouse."""

    path: str
    bytes: int


def vacuum(
    warehouse: Warehouse,
    retention: timedelta = MAX_RETENTION,
    *,
    dry_run: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Deleted]:
    """Delete unused files that are older than the retention, in whole hours; return them.

    With `dry_run` nothing is deleted. `progress` is called with the name of each table. Raises `Conflict` if
    another process is writing to the warehouse, ValueError for more than `MAX_RETENTION`."""
    if not timedelta() <= retention <= MAX_RETENTION:
        raise ValueError(f"a retention of {retention} is not between 0 and {MAX_RETENTION}")
    store = warehouse.store
    if not isinstance(store, DeltaTables):
        raise TypeError(f"{warehouse} has no Delta tables")
    hours = -(-int(retention.total_seconds()) // 3600)
    deleted = []
    with warehouse.writing():
        for log in store.logs():
            if progress is not None:
                progress(log.home.name)
            for name in log.unused(hours):
                path = log.home / name
                with contextlib.suppress(FileNotFoundError):
                    deleted.append(Deleted(path.relative_to(warehouse.path).as_posix(), path.stat().st_size))
                    if not dry_run:
                        path.unlink()
                        _remove_empty(path.parent, log.home)
            if not dry_run:
                log.shorten(hours)
    return deleted


def _remove_empty(folder: Path, home: Path) -> None:
    """Remove a folder and those above it below `home`, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != home:
            folder.rmdir()
            folder = folder.parent
