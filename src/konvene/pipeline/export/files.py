"""What an export of any format needs: which files a table is to have, and these files in their new place.

A file of a warehouse goes when the step that replaces it is over, so an exported table has files of its own:
the same ones by a hard link, or copies on another file system. Their names carry the range of offsets and the
checksum of the bytes, so a file that is there by its name is the one that is wanted, and one that is half
there never has that name.
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
"""Its rows are in the manifests: an export writes them."""


class ExportError(RuntimeError):
    """Nothing of the table that is named was changed."""


class MissingExtra(ExportError):
    """A library is needed that is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"this export needs a library that is not here: pip install 'konvene[{extra}]'")


class Exported(NamedTuple):
    """What came of one table."""

    table: str
    where: str
    files: int
    rows: int
    added: int
    removed: int


class File(NamedTuple):
    """A file that a table is to have, by its name within the table."""

    name: str
    source: Path | None
    """Where it stands in the warehouse; None if it was written in its place."""
    rows: int
    bytes: int


def chosen(warehouse: Warehouse, tables: Iterable[str] | None, exported: Iterable[str]) -> list[str]:
    """The tables to export; if none are named, all that have rows here or were exported before.

    `ExportError` for an unknown one."""
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
    """The files that a table is to have, by name."""
    if table == RUNS:
        return {file.name: file for file in [_runs(warehouse, home)]}
    found = {}
    for file in warehouse.files(table):
        name = file.path.split("/", 2)[2].replace("%", "~")
        found[name] = File(name, Path(warehouse.where(file)), file.rows, file.bytes)
    return found


def place(files: Iterable[File], home: Path) -> None:
    """Let files be where a table's are, whole. `ExportError` where the warehouse has lost one."""
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
    """Return a table's schema in which each column's metadata has its meaning under `word`."""
    meanings: Mapping[str, str] = {}
    if table in TABLES:
        meanings = {column.name: column.meaning for column in TABLES[table].columns}
    fields = [
        field.with_metadata({word: meanings[field.name]}) if field.name in meanings else field
        for field in read.schema_of(table)
    ]
    return pa.schema(fields)


def meaning(table: str) -> str:
    """What a table is, in a sentence."""
    if table in TABLES:
        return TABLES[table].meaning
    return f"Records of type {table}, as the coordinator's log has them."


def _runs(warehouse: Warehouse, home: Path) -> File:
    """The rows of the runs as a file, which has the number of the manifest in its name."""
    name = f"runs-{warehouse.snapshot.number:020}.parquet"
    rows = read.table(warehouse, RUNS)
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".{name}.part"
    pq.write_table(rows, draft, compression="zstd")
    os.replace(draft, home / name)
    return File(name, None, rows.num_rows, (home / name).stat().st_size)
