"""One Delta table of a warehouse: its files, and the last step that changed it.

A commit carries a transaction of the application `konvene`, whose version is the number of the step. It is
never retried by the library: after a lost race the table is loaded again first.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from konvene.pipeline.warehouse.data_file import DataFile
from konvene.pipeline.warehouse.warehouse import Conflict, DamagedWarehouse, MissingDelta

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["APPLICATION", "Action", "DeltaLog", "library", "statistics"]

APPLICATION = "konvene"
PROPERTIES = {"delta.checkpointInterval": "50"}
_ATTEMPTS = 10
_ENTRY = re.compile(r"[0-9]{20}\.(json|checkpoint.*\.parquet)")
_COUNTED = re.compile(r"offset|.*_(offset|ms|epoch)|(log_)?partition|group(_id)?|topic|cluster|step")
"""Columns whose least and greatest values are added to the log."""
_LONGEST_TEXT = 64


class Action(NamedTuple):
    """A file that a step adds to a table or removes from it; the path is relative to the table."""

    path: str
    bytes: int
    rows: int
    time_ms: int
    """When the file was written or removed."""
    changes_rows: bool = True
    """False if rows only move from file to file."""
    statistics: str = ""


def library() -> SimpleNamespace:
    """Return what is needed of `deltalake`. Raises `MissingDelta` if it is not installed."""
    try:
        import deltalake
        from deltalake import exceptions as errors
        from deltalake import transaction
    except ImportError:
        raise MissingDelta("keeping tables needs deltalake, which is not installed") from None
    return SimpleNamespace(
        Table=deltalake.DeltaTable, Schema=deltalake.Schema, Properties=deltalake.CommitProperties,
        Transaction=deltalake.Transaction, Add=transaction.AddAction, Remove=transaction.RemoveAction,
        NotFound=errors.TableNotFoundError, Lost=errors.CommitFailedError, Error=errors.DeltaError,
    )  # fmt: skip


class DeltaLog:
    """A Delta table in the directory `home`, whose name is the table's; it may not exist yet."""

    def __init__(self, home: Path, schema: pa.Schema, meaning: str) -> None:
        self.home = home
        self.files: dict[str, DataFile] = {}
        """Its files, by their paths relative to the warehouse."""
        self.step = 0
        """The last step that changed it."""
        self._schema, self._meaning = schema, meaning
        self._library = library()
        self._table: DeltaTable | None = None
        self._version = -1

    def __repr__(self) -> str:
        return f"<Delta table {self.home.name} at step {self.step} with {len(self.files)} files>"

    @property
    def handle(self) -> DeltaTable | None:
        """The table as `deltalake` has it; None if it does not exist."""
        return self._table

    def refresh(self) -> None:
        """Load the newest version. Raises `DamagedWarehouse` if it cannot be read or has files of others."""
        try:
            table = self._newest()
        except self._library.NotFound:
            return
        except self._library.Error as error:
            raise DamagedWarehouse(f"{self.home}: {str(error).splitlines()[0]}") from None
        self._table, version = table, table.version()
        if version == self._version:
            return
        self.step = table.transaction_version(APPLICATION) or 0
        actions = table.get_add_actions()
        columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        self.files = {file.path: file for file in map(self._file, *columns)}
        self._version = version

    def _newest(self) -> DeltaTable:
        if self._table is not None:
            try:
                self._table.update_incremental()
                return self._table
            except self._library.Error:  # Its next entries may have been cleaned up: begin at a checkpoint.
                self._table = None
        table: DeltaTable = self._library.Table(str(self.home))
        return table

    def _file(self, path: str, size: int, rows: int | None) -> DataFile:
        known = self.files.get(f"{self.home.name}/{path}")
        if known is not None:
            return known
        try:
            if rows is None:
                raise ValueError(f"{path} has no number of rows in the log")
            return DataFile.parsed(f"{self.home.name}/{path}", rows, size)
        except ValueError as error:
            raise DamagedWarehouse(
                f"{self.home}: {error}. Another program has rewritten the table: restore the version before "
                "that (`DeltaTable.restore` of deltalake, `RESTORE TABLE` of Spark)"
            ) from None

    def commit(
        self, number: int, added: Sequence[Action], removed: Sequence[Action], *, follows: int | None = None
    ) -> None:
        """Commit the part of step `number` in this table, unless it is there already.

        With `follows` the table must be at that step: raises `Conflict` if it is not, or if another process
        commits meanwhile."""
        actions = [
            *(self._library.Add(a.path, a.bytes, {}, a.time_ms, a.changes_rows, a.statistics) for a in added),
            *(self._library.Remove(a.path, a.changes_rows, a.time_ms, a.bytes, {}) for a in removed),
        ]
        properties = self._library.Properties(
            app_transactions=[self._library.Transaction(APPLICATION, number)], max_commit_retries=0
        )
        for _ in range(_ATTEMPTS):
            self.refresh()
            if follows is None and self.step >= number:
                return
            if follows is not None and self.step != follows:
                break
            table = self._created({a.path for a in removed})
            try:
                table.create_write_transaction(
                    actions, "append", self._delta_schema(), commit_properties=properties
                )
            except self._library.Lost:
                if follows is not None:
                    break
                continue
            self._committed(number, added, removed)
            return
        raise Conflict(f"{self.home.parent}: another step came first, as number {max(self.step, number)}")

    def _committed(self, number: int, added: Sequence[Action], removed: Sequence[Action]) -> None:
        """Record an own commit, so that the next `refresh` need not read all files again."""
        name = self.home.name
        for action in removed:
            self.files.pop(f"{name}/{action.path}", None)
        for action in added:
            path = f"{name}/{action.path}"
            self.files[path] = DataFile.parsed(path, action.rows, action.bytes)
        self.step, self._version = number, self._version + 1

    def _created(self, removed: set[str]) -> DeltaTable:
        """Return the table with the columns of `schema`, creating it if it does not exist.

        A table with other columns is replaced if the step removes all of its files."""
        table, mode = self._table, "ignore"
        if table is not None:
            if [field.name for field in table.schema().fields] == self._schema.names:
                return table
            if not {path.partition("/")[2] for path in self.files} <= removed:
                raise DamagedWarehouse(f"{self.home} has other columns than this version of konvene writes")
            mode = "overwrite"
        self.home.mkdir(parents=True, exist_ok=True)
        created: DeltaTable = self._library.Table.create(
            str(self.home), self._delta_schema(), mode=mode, name=self.home.name, description=self._meaning,
            configuration=PROPERTIES,
        )  # fmt: skip
        self._table, self._version = created, created.version()
        return created

    def _delta_schema(self) -> Any:
        return self._library.Schema.from_arrow(self._schema)

    # upkeep ---------------------------------------------------------------------------------------

    def unused(self, hours: int) -> list[str]:
        """Return the files that no version of the last hours needs, by their paths relative to the table:
        those that were removed before, and those that no version has and that are older."""
        self.refresh()
        if self._table is not None:
            found: list[str] = self._table.vacuum(
                hours, dry_run=True, enforce_retention_duration=False, full=True
            )
            return sorted(found)
        before = time.time() - hours * 3600
        paths = (path for path in self.home.rglob("*") if path.is_file() and path.stat().st_mtime <= before)
        return sorted(path.relative_to(self.home).as_posix() for path in paths)

    def shorten(self, hours: int) -> None:
        """Write a checkpoint, and delete older entries of the log that are older than these hours."""
        self.refresh()
        if self._table is None:
            return
        folder, newest = self.home / "_delta_log", f"{self._version:020}.checkpoint.parquet"
        if not (folder / newest).exists():
            self._table.create_checkpoint()
        before = time.time() - hours * 3600
        entries = sorted(path for path in folder.iterdir() if _ENTRY.fullmatch(path.name))
        old = [path for path in entries if path.stat().st_mtime <= before]
        last = max((path.name[:20] for path in old if path.suffix == ".parquet"), default="")
        for path in old:
            if path.name[:20] < last:
                path.unlink()

    # after a power failure ------------------------------------------------------------------------

    @property
    def entry(self) -> Path:
        """The file of the newest known version."""
        return self.home / "_delta_log" / f"{self._version:020}.json"

    def drop_torn_entry(self) -> bool:
        """Delete the newest entry or checkpoint of the log if a power failure has left it incomplete; return
        True if it was.

        What was acknowledged was synced, so an incomplete file is of a step that was not."""
        folder = self.home / "_delta_log"
        names = (path for path in folder.glob("*") if _ENTRY.fullmatch(path.name))
        newest = sorted(names, key=lambda path: path.name)[-2:]
        torn = [path for path in newest if _is_torn(path)]
        for path in torn:
            path.unlink()
            if path.suffix == ".parquet":
                (folder / "_last_checkpoint").unlink(missing_ok=True)
            self._table, self._version = None, -1
        return bool(torn)


def _is_torn(path: Path) -> bool:
    try:
        if path.suffix == ".parquet":
            pq.read_metadata(path)
            return False
        lines = path.read_text().splitlines()
        return not [json.loads(line) for line in lines]
    except (ValueError, OSError, pa.ArrowException):
        return True


def statistics(path: Path) -> str:
    """Return the statistics of a Parquet file as a Delta log has them: the number of rows, and least and
    greatest values and nulls of columns that queries filter by."""
    metadata = pq.read_metadata(path)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        if not _COUNTED.fullmatch(name):
            continue
        found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        filled = [each for each in found if each.num_values]
        if filled and len(bounded) >= len(filled):
            low, high = min(each.min for each in bounded), max(each.max for each in bounded)
            if not isinstance(low, str) or max(len(low), len(high)) <= _LONGEST_TEXT:
                least[name], greatest[name] = low, high
    return json.dumps({
        "numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls,
    }, separators=(",", ":"))  # fmt: skip
