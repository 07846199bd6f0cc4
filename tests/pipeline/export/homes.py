"""Small warehouses to export from, written file by file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from konvene.pipeline.sources.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.parquet import Sink
from konvene.pipeline.warehouse.warehouse import DataFile, Warehouse

TABLE = "topic_name"


def add(
    warehouse: Warehouse, *names: str, removed: tuple[DataFile, ...] = (), table: str = TABLE
) -> DataFile:
    """Commit a step that writes a file with one row per name."""
    folder = f"{table}/@c/in-0"
    sink = Sink(warehouse.path / folder, TABLES[table].schema)
    rows = [{"cluster": "c", "topic_id": f"id of {name}", "topic": name, "partitions": 3} for name in names]
    sink.write(pa.RecordBatch.from_pylist(rows, schema=TABLES[table].schema))
    written = sink.close(lambda digest: f"v1-{names[0]}-{digest}.parquet")
    assert written is not None
    file = DataFile.made(table, folder, Partition("c", "in", 0), 0, 0, written, names[0])
    warehouse.commit("ingest", [file], removed)
    return file


def warehouse(path: Path) -> tuple[Warehouse, DataFile]:
    """Return a warehouse with one file of two rows, and that file."""
    made = Warehouse(path / "warehouse")
    return made, add(made, "a", "b")
