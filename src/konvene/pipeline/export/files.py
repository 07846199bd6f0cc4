"""Files of an export: which files a table needs, and linking or copying them to their place.

The warehouse deletes a file once the step that replaced it is over, so an exported table has files of its
own: hard links, or copies on another file system. A file's name has its range of offsets and the checksum of
its bytes, so an existing file of that name has the right contents. An incomplete file never has its final
name.
"""

# Files are linked and renamed by system calls whose promises are known:
# ruff: noqa: PTH105

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = [
    "ExportError", "Exported", "File", "MissingExtra", "chosen", "described", "meaning", "place", "wanted",
]  # fmt: skip

RUNS = "pipeline_run"
"""Table whose rows are in the manifests instead of files; the export writes its file."""


class ExportError(RuntimeError):
    """An export failed; the table named in the message is unchanged."""


class MissingExtra(ExportError):
    """An optional library is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"this export needs a library that is not here: pip install 'konvene[{extra}]'")


class Exported(NamedTuple):
    """The result of exporting one table: its size now, and the files that were added and removed."""

    table: str
    where: str
    files: int
    rows: int
    added: int
    removed: int


class File(NamedTuple):
    """A file that an exported table needs, by its name within the table."""

    name: str
    source: Path | None
    """Path in the warehouse; None if the export wrote the file itself."""
    rows: int
    bytes: int


def chosen(warehouse: Warehouse, tables: Iterable[str] | None, exported: Iterable[str]) -> list[str]:
    """Return the sorted names of the tables to export.

    If `tables` is None these are all that have rows or were exported before. Raises `ExportError` for an
    unknown table."""
    known = {*TABLES, *(silver.name for silver in TYPED.values())}
    there = {*warehouse.tables(), *({RUNS} if warehouse.snapshot.runs else ()), *(known & set(exported))}
    if tables is None:
        return sorted(there)
    requested = sorted(set(tables))
    for name in requested:
        if name not in known:
            raise ExportError(f"there is no table {name}")
    return [name for name in requested if name in there]


def wanted(warehouse: Warehouse, table: str, home: Path) -> dict[str, File]:
    """Return the files that the exported table needs, by their names within it."""
    if table == RUNS:
        return {file.name: file for file in [_runs(warehouse, home)]}
    found = {}
    for file in warehouse.files(table):
        name = file.path.split("/", 2)[2].replace("%", "~")
        found[name] = File(name, Path(warehouse.where(file)), file.rows, file.bytes)
    return found


def place(files: Iterable[File], home: Path) -> None:
    """Link or copy files to the exported table. Raises `ExportError` if the warehouse has lost one."""
    for file in files:
        target = home / file.name
        if file.source is None or (target.exists() and target.stat().st_size == file.bytes):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.part")
        draft.unlink(missing_ok=True)
        try:
            _link_or_copy(file.source, draft)
        except FileNotFoundError:
            raise ExportError(f"{file.source} is not there any more; refresh the warehouse") from None
        os.replace(draft, target)


def _link_or_copy(source: Path, draft: Path) -> None:
    try:
        os.link(source, draft)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, draft)
        with draft.open("rb+") as copy:
            os.fsync(copy.fileno())


def described(table: str, word: str) -> pa.Schema:
    """Return a table's schema with the description of each column in its metadata, under the key `word`."""
    meanings: Mapping[str, str] = {}
    if table in TABLES:
        meanings = {column.name: column.meaning for column in TABLES[table].columns}
    fields = [
        field.with_metadata({word: meanings[field.name]}) if field.name in meanings else field
        for field in read.schema_of(table)
    ]
    return pa.schema(fields)


def meaning(table: str) -> str:
    """Return one sentence that describes a table."""
    if table in TABLES:
        return TABLES[table].meaning
    return f"Records of type {table}, as the coordinator's log has them."


def _runs(warehouse: Warehouse, home: Path) -> File:
    """Write the rows of `pipeline_run` to a file of the export, whose name has the number of the manifest."""
    name = f"runs-{warehouse.snapshot.number:020}.parquet"
    rows = read.table(warehouse, RUNS)
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".{name}.part"
    pq.write_table(rows, draft, compression="zstd")
    os.replace(draft, home / name)
    return File(name, None, rows.num_rows, (home / name).stat().st_size)
