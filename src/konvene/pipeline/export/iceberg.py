"""Exports Iceberg tables with `pyiceberg`: no JVM, no Spark.

The catalogue is a SQLite file in the directory, `catalog.db`, with all tables in the namespace `konvene`.
Readers open it as a catalogue of type `sql`, or open a table by its newest metadata file. The files of a
table are added and removed in one snapshot, whose summary has the number of the warehouse's step. The
catalogue accepts one of two concurrent commits; an export without changes makes no commit, and an older state
never replaces a newer one. Removed files stay for readers of older snapshots.

Columns of one and two bytes become four-byte integers, since Iceberg has no shorter ones. `pyiceberg` reads
null lists of structs (the values of tombstones) as empty (apache/iceberg-python, 3833); other readers see
null.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from konvene.pipeline.export.files import (
    Exported,
    ExportError,
    MissingExtra,
    chosen,
    place,
    wanted,
)
from konvene.pipeline.warehouse.read import described, meaning
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

__all__ = ["NAMESPACE", "STEP", "catalog", "export"]

NAMESPACE = "konvene"
STEP = "konvene.step"
_NO_RETRIES = {"commit.retry.num-retries": "0"}
"""Disables retries: after a lost race the winning commit may have added the same files."""


def export(warehouse: Warehouse, where: str | Path, tables: Iterable[str] | None = None) -> list[Exported]:
    """Bring the Iceberg tables under `where` up to date with the warehouse; return the changes of each table.

    Raises `MissingExtra` without `pyiceberg`, and `ExportError` if a table has a later state or other
    columns."""
    library = _library()
    home = Path(where).absolute()
    home.mkdir(parents=True, exist_ok=True)
    found = catalog(home)
    found.create_namespace_if_not_exists(NAMESPACE)
    exported = [names[-1] for names in found.list_tables(NAMESPACE)]
    names = chosen(warehouse, tables, exported)
    return [_table(library, found, warehouse, table, home / table) for table in names]


def catalog(where: str | Path) -> SqlCatalog:
    """Open the catalogue of a directory for reading. Raises `MissingExtra` without `pyiceberg`."""
    home = Path(where).absolute()
    found: SqlCatalog = _library().SqlCatalog(
        NAMESPACE, uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri()
    )
    return found


def _library() -> SimpleNamespace:
    try:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_file_to_data_file
        from pyiceberg.table import TableProperties
    except ImportError:
        raise MissingExtra("iceberg") from None
    return SimpleNamespace(
        SqlCatalog=SqlCatalog, Lost=CommitFailedException, data_file=parquet_file_to_data_file,
        name_mapping=TableProperties.DEFAULT_NAME_MAPPING,
    )  # fmt: skip


def _table(
    library: SimpleNamespace, found: SqlCatalog, warehouse: Warehouse, table: str, home: Path
) -> Exported:
    schema = described(table, "doc")
    number = warehouse.snapshot.number
    properties = {"comment": meaning(table), **_NO_RETRIES}
    there = found.create_table_if_not_exists(
        (NAMESPACE, table), schema, location=home.as_uri(), properties=properties
    )
    known = _step_of(there)
    if known > number:
        raise ExportError(f"{home} is of step {known}, and the warehouse is at {number}")
    if [field.name for field in there.schema().fields] != schema.names:
        raise ExportError(f"{home} has other columns: drop the table, and export anew")
    data = home / "data"
    files = {f"{data.as_uri()}/{name}": file for name, file in wanted(warehouse, table).items()}
    present = {task.file.file_path: task.file for task in there.scan().plan_files()}
    added = sorted(files.keys() - present.keys())
    removed = sorted(present.keys() - files.keys())
    if added or removed:
        place((files[uri] for uri in added), data)
        _commit(library, there, number, added, [present[uri] for uri in removed])
    rows = sum(file.rows for file in files.values())
    return Exported(table, str(home), len(files), rows, len(added), len(removed))


def _step_of(there: Table) -> int:
    """Return the number of the step of the warehouse that a table was exported from; -1 if it has none."""
    snapshot = there.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return int(summary.additional_properties.get(STEP, -1)) if summary is not None else -1


def _commit(
    library: SimpleNamespace, there: Table, number: int, added: Sequence[str], removed: Sequence[DataFile]
) -> None:
    try:
        with there.transaction() as transaction:
            if there.metadata.name_mapping() is None:
                mapping = there.schema().name_mapping.model_dump_json()
                transaction.set_properties({library.name_mapping: mapping})
            update = transaction.update_snapshot({STEP: str(number)})
            with _quietly(), update.overwrite() if removed else update.fast_append() as change:
                for uri in added:
                    change.append_data_file(library.data_file(there.io, transaction.table_metadata, uri))
                for file in removed:
                    change.delete_data_file(file)
    except library.Lost as error:
        raise ExportError(f"{there.location()} was changed meanwhile: {error}") from None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the warnings about columns without statistics, which are omitted on purpose."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    logger.addFilter(_is_relevant)
    try:
        yield
    finally:
        logger.removeFilter(_is_relevant)


def _is_relevant(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("PyArrow statistics missing")
