"""The warehouse: a directory of tables that change together, step by step.

A step (an ingest, a build, an optimize) writes its files first and then commits: the files that it added and
removed in all tables, the ledger of each log, and the row of its run. It is committed completely or not at
all. Steps are numbered by one; of two concurrent writers one fails without effect. A reader sees the state
after one step and is not disturbed by later ones.

A store keeps the state. `DeltaTables` keeps it in Delta tables, which other engines read;
`konvene.pipeline.warehouse.memory` keeps it in memory, over a temporary directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from konvene.pipeline.sources.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.data_file import DataFile, folder_of
from konvene.pipeline.warehouse.parquet import VERSION, Sink

__all__ = [
    "Change", "Conflict", "DamagedWarehouse", "DataFile", "MissingDelta", "OldFormat", "Snapshot", "Store",
    "Warehouse", "folder_of",
]  # fmt: skip

RUNS = "pipeline_run"


class Conflict(RuntimeError):
    """Another process is writing to this warehouse, or has just done so. Nothing was changed; retry."""


class DamagedWarehouse(RuntimeError):
    """A file or a part of a table's log is missing, corrupt or of another program."""


class OldFormat(RuntimeError):
    """The directory has tables in the format of an older konvene."""


class MissingDelta(RuntimeError):
    """The library `deltalake` is not installed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a warehouse after step `number`."""

    number: int = 0
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """Files by path."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """State that steps keep from run to run, by keys of their own."""

    def __repr__(self) -> str:
        return f"<snapshot {self.number} with {len(self.files)} files>"


class Change(NamedTuple):
    """What a step changes."""

    number: int
    step: str
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    ledger: Mapping[str, object]
    rewritten: frozenset[str] = frozenset()
    """Paths of added and removed files whose rows only move from file to file."""

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """Return the state after this step, which follows `snapshot`."""
        files = dict(snapshot.files)
        for file in self.removed:
            files.pop(file.path, None)
        files |= {file.path: file for file in self.added}
        return Snapshot(self.number, files, {**snapshot.ledger, **self.ledger})


class Store(Protocol):
    """Keeps the state of a warehouse."""

    def load(self) -> Snapshot:
        """Return the newest state."""

    def locked(self, patience_s: float) -> contextlib.AbstractContextManager[None]:
        """Exclude other writers within the block. Raises `Conflict` if there still is one after that time."""

    def commit(self, change: Change) -> Snapshot:
        """Commit a step durably and return the new state. Raises `Conflict` if another one came first."""


class Warehouse:
    """A directory of tables, as its newest step left them at creation or the last `refresh`.

    The state is kept in Delta tables, unless another store is given. Raises `OldFormat` for the tables of an
    older konvene, and `MissingDelta` without `deltalake`. A step waits `patience_s` for another writer."""

    def __init__(self, path: str | Path, store: Store | None = None, *, patience_s: float = 0) -> None:
        self.path = Path(path).absolute()
        if store is None:
            from konvene.pipeline.warehouse.delta import DeltaTables

            store = DeltaTables(self.path)
        self.store = store
        self._patience_s = patience_s
        self.snapshot = store.load()

    def __repr__(self) -> str:
        return f"<warehouse {self.path}, {self.snapshot!r}>"

    # reading --------------------------------------------------------------------------------------

    def refresh(self) -> Snapshot:
        """Load the newest state. Raises `DamagedWarehouse` if a part of it is missing or unreadable."""
        self.snapshot = self.store.load()
        return self.snapshot

    def files(
        self,
        table: str,
        topic: str | None = None,
        partition: int | None = None,
        *,
        cluster: str | None = None,
        family: str | None = None,
    ) -> list[DataFile]:
        """Return the files of a table that match all given arguments, ordered by log and offset."""
        found = (
            f
            for f in self.snapshot.files.values()
            if f.table == table
            and (topic is None or f.topic == topic)
            and (partition is None or f.partition == partition)
            and (cluster is None or f.cluster == cluster)
            and (family is None or f.family == family)
        )
        return sorted(found, key=lambda f: f.place)

    def tables(self) -> list[str]:
        """Return the names of the tables that have files."""
        return sorted({f.table for f in self.snapshot.files.values()})

    def where(self, file: DataFile) -> str:
        """Return a file's path on this machine."""
        return str(self.path / file.path)

    # writing --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[Snapshot]:
        """Hold the write lock within the block, and refresh. Raises `Conflict` if another process has it."""
        with self.store.locked(self._patience_s):
            yield self.refresh()

    def commit(
        self,
        step: str,
        added: Iterable[DataFile],
        removed: Iterable[str | DataFile] = (),
        *,
        ledger: Mapping[str, object] | None = None,
        run: Mapping[str, object] | None = None,
        rewrites: bool = False,
    ) -> int:
        """Commit a step and return its number.

        `ledger` has the entries to set, `run` the row of `pipeline_run`; `rewrites` means that all
        other rows only move from file to file. Raises `Conflict` if another step was committed first."""
        number = self.snapshot.number + 1
        new = {file.path: file for file in added}
        paths = {f if isinstance(f, str) else f.path for f in removed} - new.keys()
        deleted = tuple(self.snapshot.files[path] for path in sorted(paths))
        self._check(new.values())
        rewritten = frozenset([*new, *paths]) if rewrites else frozenset[str]()
        if run is not None:
            row = self._write_run(number, run)
            new[row.path] = row
        ordered = tuple(new[path] for path in sorted(new) if path not in self.snapshot.files)
        change = Change(number, step, ordered, deleted, ledger or {}, rewritten)
        self.snapshot = self.store.commit(change)
        return number

    def _check(self, files: Iterable[DataFile]) -> None:
        """Raise `DamagedWarehouse` unless all files exist with their size."""
        for file in files:
            try:
                size = os.stat(self.path / file.path).st_size  # noqa: PTH116
            except FileNotFoundError:
                size = -1
            if size != file.bytes:
                raise DamagedWarehouse(f"{file.path} should have {file.bytes} bytes and has {size}")

    def _write_run(self, number: int, run: Mapping[str, object]) -> DataFile:
        """Write the row of a step to a file of `pipeline_run`."""
        of = Partition("", "", -1)
        folder, table = folder_of(RUNS, of), TABLES[RUNS]
        sink = Sink(self.path / folder, table.schema)
        sink.write(table.batch([tuple(run[column.name] for column in table.columns)]))
        written = sink.close(lambda checksum: f"{number}-{number}-v{VERSION}-{checksum}.parquet")
        assert written is not None
        return DataFile.made(RUNS, folder, of, number, number, written)
