"""Files of an export: which files a table needs, and linking or copying them to their place.

A vacuum of the warehouse deletes files that its own tables do not need, so an exported table has files of its
own: hard links, or copies on another file system. A file's name has its range of offsets and the checksum of
its bytes, so an existing file of that name has the right contents. An incomplete file never has its final
name.
"""

# Files are linked and renamed by system calls whose promises are known:
# ruff: noqa: PTH105

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = ["ExportError", "Exported", "File", "MissingExtra", "chosen", "place", "wanted"]


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
    source: Path
    rows: int
    bytes: int


def chosen(warehouse: Warehouse, tables: Iterable[str] | None, exported: Iterable[str]) -> list[str]:
    """Return the sorted names of the tables to export.

    If `tables` is None these are all that have rows or were exported before. Raises `ExportError` for an
    unknown table."""
    known = {*TABLES, *(silver.name for silver in TYPED.values())}
    there = {*warehouse.tables(), *(known & set(exported))}
    if tables is None:
        return sorted(there)
    requested = sorted(set(tables))
    for name in requested:
        if name not in known:
            raise ExportError(f"there is no table {name}")
    return [name for name in requested if name in there]


def wanted(warehouse: Warehouse, table: str) -> dict[str, File]:
    """Return the files that the exported table needs, by their names within it."""
    found = {}
    for file in warehouse.files(table):
        name = file.path.partition("/")[2]
        found[name] = File(name, Path(warehouse.where(file)), file.rows, file.bytes)
    return found


def place(files: Iterable[File], home: Path) -> None:
    """Link or copy files to the exported table. Raises `ExportError` if the warehouse has lost one."""
    for file in files:
        target = home / file.name
        if target.exists() and target.stat().st_size == file.bytes:
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
