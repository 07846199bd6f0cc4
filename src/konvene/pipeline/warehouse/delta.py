"""Keeps the state of a warehouse in Delta tables: one per table, and `_steps` for what they have in common.

Delta has no transaction over several tables. So a step is committed by one commit to `_steps`, whose rows
have the ledger and, under the key `pending`, the files that the step adds to all other tables and removes
from them. Then each of these tables gets its part, in one commit. All carry the number of the step.

A writer that dies between these commits leaves tables behind `_steps`; the next writer completes them first.
A reader applies the pending part itself, so it sees each step completely or not at all; if it meets a table
that is ahead of `_steps`, it reads `_steps` again.

On one machine a kernel lock, which ends with its holder, stops a second writer before it starts. On file
systems without such a lock across machines, the commit to `_steps` still lets only one of them win.

Files are synced before the commit that names them, and the entry of `_steps` before those of the tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from konvene.log.disk.files import RealDisk
from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.data_file import DataFile
from konvene.pipeline.warehouse.delta_log import Action, DeltaLog, statistics
from konvene.pipeline.warehouse.parquet import VERSION, Sink
from konvene.pipeline.warehouse.warehouse import Change, Conflict, DamagedWarehouse, OldFormat, Snapshot

__all__ = ["FOLD", "STEPS", "DeltaTables"]

STEPS = "_steps"
FOLD = 16
"""After so many steps the rows of `_steps` are written to one file again."""
_SCHEMA = pa.schema([
    pa.field("step", pa.int64(), nullable=False),
    pa.field("key", pa.string(), nullable=False),
    pa.field("value", pa.string(), nullable=False),
])  # fmt: skip
_PENDING, _LEDGER, _TABLE = "pending", "ledger/", "table/"
_ATTEMPTS = 50
_POLL_S = 0.05


class DeltaTables:
    """Store of a warehouse that is kept: a directory of Delta tables."""

    def __init__(self, path: Path) -> None:
        if (path / "_manifest").is_dir():
            raise OldFormat(f"{path} has tables in the format of an older konvene")
        self._path = path
        self._log = DeltaLog(path / STEPS, _SCHEMA, "Steps of all tables: the newest value of a key counts.")
        self._values: dict[str, str] = {}
        """The newest value of each key of `_steps`, as JSON."""
        self._number = 0
        self._tables: dict[str, DeltaLog] = {}
        self._snapshot = Snapshot()
        self._is_locked = False

    def __repr__(self) -> str:
        return f"<Delta tables in {self._path}, {self._snapshot!r}>"

    # reading --------------------------------------------------------------------------------------

    def load(self) -> Snapshot:
        try:
            return self._load()
        except DamagedWarehouse:
            if not self._drop_torn_entries():
                raise
            return self._load()

    def _load(self) -> Snapshot:
        for _ in range(_ATTEMPTS):
            self._read_steps()
            if self._number == self._snapshot.number:
                return self._snapshot
            if self._read_tables():
                self._snapshot = self._assembled()
                return self._snapshot
        raise DamagedWarehouse(f"{self._path}: a table is ahead of {STEPS}, which was changed or restored")

    def _read_steps(self) -> None:
        self._log.refresh()
        files = sorted(self._log.files.values(), key=lambda file: file.last_offset)
        for file in files:
            if file.last_offset > self._number:
                rows = self._read(file)
                keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
                self._values.update(zip(keys, values, strict=True))
                self._number = file.last_offset
        if self._number != self._log.step:
            raise DamagedWarehouse(f"{self._log.home}: the rows of step {self._log.step} are missing")

    def _read(self, file: DataFile) -> pa.Table:
        try:
            return pq.read_table(self._path / file.path)
        except (OSError, pa.ArrowException) as error:
            raise DamagedWarehouse(f"{file.path}: {error}") from None

    def _read_tables(self) -> bool:
        """Load the tables that changed; return False if one is ahead of `_steps`."""
        for name, number in self._changed_at().items():
            log = self._table(name)
            if log.step < number:
                log.refresh()
            if log.step > number:
                return False
            if log.step < number != self._number:
                raise DamagedWarehouse(f"{log.home} is at step {log.step} and should be at {number}")
        return True

    def _assembled(self) -> Snapshot:
        files = {path: file for log in self._tables.values() for path, file in log.files.items()}
        for name, (added, removed) in self._pending().items():
            if self._table(name).step < self._number:
                for action in removed:
                    files.pop(f"{name}/{action.path}", None)
                for action in added:
                    path = f"{name}/{action.path}"
                    files[path] = DataFile.parsed(path, action.rows, action.bytes)
        ledger = {
            key.removeprefix(_LEDGER): json.loads(value)
            for key, value in self._values.items()
            if key.startswith(_LEDGER)
        }
        return Snapshot(self._number, files, ledger)

    def _changed_at(self) -> dict[str, int]:
        """Return the last step that changed each table."""
        return {
            key.removeprefix(_TABLE): int(value)
            for key, value in self._values.items()
            if key.startswith(_TABLE)
        }

    def _pending(self) -> dict[str, tuple[list[Action], list[Action]]]:
        """Return the files that the newest step adds to each table and removes from it."""
        tables: dict[str, Any] = json.loads(self._values[_PENDING])["tables"] if self._number else {}
        return {
            name: ([Action(*each) for each in added], [Action(*each) for each in removed])
            for name, (added, removed) in tables.items()
        }

    def _table(self, name: str) -> DeltaLog:
        log = self._tables.get(name)
        if log is None:
            schema = read.described(name, "comment")
            log = self._tables[name] = DeltaLog(self._path / name, schema, read.meaning(name))
        return log

    def logs(self) -> list[DeltaLog]:
        """Return the logs of all tables in the directory, also of those that no step has committed yet."""
        names = {*TABLES, *(table.name for table in TYPED.values())}
        found = [self._table(name) for name in sorted(names) if (self._path / name).is_dir()]
        return [self._log, *found]

    # writing --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, patience_s: float) -> Iterator[None]:
        self._path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + patience_s
            while not _try_lock(handle):
                if time.monotonic() >= deadline:
                    raise Conflict(f"{self._path}: another process is writing to this warehouse")
                time.sleep(_POLL_S)
            self._is_locked = True
            self.load()
            self._complete()
            yield
        finally:
            self._is_locked = False
            os.close(handle)

    def _drop_torn_entries(self) -> bool:
        """Delete entries of logs that a power failure has left incomplete; return True if there were any.

        Returns False as well if another process is writing, which does it."""
        logs = (self._log, *self._tables.values())
        if self._is_locked:
            return sum(log.drop_torn_entry() for log in logs) > 0
        with contextlib.suppress(OSError):
            handle = os.open(self._path / ".lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                if _try_lock(handle):
                    return sum(log.drop_torn_entry() for log in logs) > 0
            finally:
                os.close(handle)
        return False

    def commit(self, change: Change) -> Snapshot:
        self._complete()
        tables = self._actions(change)
        pending = {"step": change.step, "tables": tables}
        values = {
            _PENDING: json.dumps(pending, separators=(",", ":")),
            **{_TABLE + name: str(change.number) for name in tables},
            **{_LEDGER + key: json.dumps(value, sort_keys=True) for key, value in change.ledger.items()},
        }
        self._commit_step(change, values)
        self._values.update(values)
        self._number = change.number
        self._snapshot = change.applied(self._snapshot)
        self._complete()
        return self._snapshot

    def _commit_step(self, change: Change, values: Mapping[str, str]) -> None:
        """Make a step visible: the commit that decides it."""
        folds = change.number % FOLD == 0
        rows = {**self._values, **values} if folds else values
        file = self._write_rows(change.number, rows)
        self._sync([*(file.path for file in change.added), file.path])
        removed = [_action(f, _now_ms()) for f in self._log.files.values()] if folds else []
        added = [_action(file, _now_ms(), statistics=statistics(self._path / file.path))]
        self._log.commit(change.number, added, removed, follows=change.number - 1)
        _sync(self._log.entry)
        _sync(self._log.entry.parent)

    def _write_rows(self, number: int, values: Mapping[str, str]) -> DataFile:
        sink = Sink(self._path / STEPS, _SCHEMA)
        keys = sorted(values)
        columns = [[number] * len(keys), keys, [values[key] for key in keys]]
        sink.write(pa.record_batch(columns, schema=_SCHEMA))
        written = sink.close(lambda checksum: f"{number}-{number}-v{VERSION}-{checksum}.parquet")
        assert written is not None
        return DataFile.made(STEPS, STEPS, Partition("", "", -1), number, number, written)

    def _actions(self, change: Change) -> dict[str, tuple[list[Action], list[Action]]]:
        """Return what a step adds and removes, by table."""
        tables: dict[str, tuple[list[Action], list[Action]]] = {}
        for file in change.added:
            path = self._path / file.path
            added, _ = tables.setdefault(file.table, ([], []))
            changes_rows, time_ms = file.path not in change.rewritten, path.stat().st_mtime_ns // 1_000_000
            added.append(_action(file, time_ms, changes_rows, statistics(path)))
        now_ms = _now_ms()
        for file in change.removed:
            _, removed = tables.setdefault(file.table, ([], []))
            removed.append(_action(file, now_ms, file.path not in change.rewritten))
        return tables

    def _complete(self) -> None:
        """Commit the newest step to the tables that do not have it yet."""
        behind = [
            (self._table(name), added, removed)
            for name, (added, removed) in self._pending().items()
            if self._table(name).step < self._number
        ]
        for log, added, removed in behind:
            log.commit(self._number, added, removed)
        if behind:
            self._sync(log.entry.relative_to(self._path).as_posix() for log, _, _ in behind)

    def _sync(self, paths: Iterable[str]) -> None:
        """Sync files of the warehouse to disk, with their directories."""
        if RealDisk().settle(str(self._path)):
            return
        folders = set()
        for path in map(Path, paths):
            _sync(self._path / path)
            folders |= {self._path / parent for parent in path.parents}
        for folder in sorted(folders):
            _sync(folder)


def _action(file: DataFile, time_ms: int, changes_rows: bool = True, statistics: str = "") -> Action:
    return Action(file.path.partition("/")[2], file.bytes, file.rows, time_ms, changes_rows, statistics)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
