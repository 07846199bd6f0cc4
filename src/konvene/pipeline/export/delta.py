"""Exports Delta tables, one directory each, with `deltalake`: no JVM, no Spark.

The files of a table are added and removed in one commit. The commit carries a transaction of the application
`konvene` whose version is the number of the warehouse's manifest: of two concurrent exports one fails, and an
older state never replaces a newer one. An export without changes makes no commit. Removed files stay for
readers of older versions until another writer vacuums the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from konvene.pipeline.export.files import (
    Exported,
    ExportError,
    File,
    MissingExtra,
    chosen,
    described,
    meaning,
    place,
    wanted,
)
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

__all__ = ["APPLICATION", "export"]

APPLICATION = "konvene"


def export(warehouse: Warehouse, where: str | Path, tables: Iterable[str] | None = None) -> list[Exported]:
    """Bring the Delta tables under `where` up to date with the warehouse; return the changes of each table.

    Raises `MissingExtra` without `deltalake`, and `ExportError` if a table has a later state or other
    columns."""
    deltalake = _library()
    home = Path(where).absolute()
    exported = [folder.parent.name for folder in home.glob("*/_delta_log")]
    return [
        _table(deltalake, warehouse, table, home / table) for table in chosen(warehouse, tables, exported)
    ]


def _library() -> ModuleType:
    try:
        import deltalake
        import deltalake.transaction
    except ImportError:
        raise MissingExtra("delta") from None
    found: ModuleType = deltalake
    return found


def _table(deltalake: ModuleType, warehouse: Warehouse, table: str, home: Path) -> Exported:
    schema = deltalake.Schema.from_arrow(described(table, "comment"))
    number = warehouse.snapshot.number
    home.mkdir(parents=True, exist_ok=True)
    there = deltalake.DeltaTable.create(
        str(home),
        schema,
        mode="ignore",
        name=table,
        description=meaning(table),
        raise_if_key_not_exists=False,
    )
    known = there.transaction_version(APPLICATION)
    if known is not None and known > number:
        raise ExportError(f"{home} is of manifest {known}, and the warehouse is at {number}")
    if [field.name for field in there.schema().fields] != [field.name for field in schema.fields]:
        raise ExportError(f"{home} has other columns: move it away, and export anew")
    files = wanted(warehouse, table, home)
    present = _present(there)
    added = [file for name, file in files.items() if name not in present]
    removed = {name: size for name, size in present.items() if name not in files}
    if added or removed:
        place(added, home)
        _commit(deltalake, there, schema, number, _actions(deltalake, home, added, removed))
    rows = sum(file.rows for file in files.values())
    return Exported(table, str(home), len(files), rows, len(added), len(removed))


def _present(there: DeltaTable) -> dict[str, int]:
    """Return the files of the Delta table with their sizes."""
    actions = there.get_add_actions()
    names, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    return dict(zip(names, sizes, strict=True))


def _actions(
    deltalake: ModuleType, home: Path, added: Iterable[File], removed: Mapping[str, int]
) -> list[AddAction | RemoveAction]:
    words = deltalake.transaction
    made = []
    newest = 0
    for file in added:
        at_ms = int((home / file.name).stat().st_mtime * 1000)
        newest = max(newest, at_ms)
        stats = json.dumps({"numRecords": file.rows})
        made.append(words.AddAction(file.name, file.bytes, {}, at_ms, True, stats))
    return made + [words.RemoveAction(name, True, newest, size, {}) for name, size in removed.items()]


def _commit(
    deltalake: ModuleType, there: DeltaTable, schema: Schema, number: int,
    actions: list[AddAction | RemoveAction],
) -> None:  # fmt: skip
    properties = deltalake.CommitProperties(
        custom_metadata={"konvene.manifest": str(number)},
        app_transactions=[deltalake.Transaction(APPLICATION, number)],
    )
    try:
        there.create_write_transaction(actions, "append", schema, commit_properties=properties)
    except deltalake.exceptions.CommitFailedError as error:
        raise ExportError(f"{there.table_uri} was changed meanwhile: {error}") from None
