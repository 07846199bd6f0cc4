"""Keeps the state of a warehouse in memory, for tables in a temporary directory of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from konvene.pipeline.warehouse.data_file import DataFile
from konvene.pipeline.warehouse.warehouse import Change, Conflict, Snapshot

__all__ = ["InMemory"]


class InMemory:
    """Store of a temporary warehouse: its state ends with the process.

    Removed files are deleted one step later, when this process does not read them any more."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._snapshot = Snapshot()
        self._removed: tuple[DataFile, ...] = ()
        self._is_locked = False

    def __repr__(self) -> str:
        return f"<in memory, {self._snapshot!r}>"

    def load(self) -> Snapshot:
        return self._snapshot

    @contextlib.contextmanager
    def locked(self, patience_s: float) -> Iterator[None]:
        if self._is_locked:
            raise Conflict(f"{self._path}: a step is running")
        self._is_locked = True
        try:
            yield
        finally:
            self._is_locked = False

    def commit(self, change: Change) -> Snapshot:
        if change.number != self._snapshot.number + 1:
            raise Conflict(f"{self._path}: another step came first, as number {change.number}")
        for file in self._removed:
            if file.path not in self._snapshot.files:
                (self._path / file.path).unlink(missing_ok=True)
        self._removed = change.removed
        self._snapshot = change.applied(self._snapshot)
        return self._snapshot
