"""Rows of a long stream with optimize and vacuum are those of one batch, also for readers that kept up."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from tests.pipeline.maintenance.year import assert_equal, stream
from tests.pipeline.segments import log, write

from konvene.pipeline.warehouse.warehouse import Warehouse


def test_stream_with_maintenance_equals_one_batch(tmp_path: Path) -> None:
    """Batches of about ten records; readers that open the tables now and then see whole steps."""
    write(tmp_path / "logs", log(11, 30), cuts=[10, 20])
    reader, ages = Warehouse(tmp_path / "w"), []

    def watch(number: int, warehouse: Warehouse) -> None:
        if number % 4 == 0:
            assert reader.refresh() == warehouse.refresh() == Warehouse(warehouse.path).snapshot
            table = DeltaTable(str(warehouse.path / "coordinator_record"))
            assert table.count() == sum(file.rows for file in reader.files("coordinator_record"))
            ages.append(len(reader.snapshot.files))

    warehouse = stream(tmp_path / "w", tmp_path / "logs", 10, 3, 5, watch)
    assert warehouse.snapshot.number > 20
    assert max(ages) < 40, "files do not accumulate"
    assert_equal(tmp_path / "once", tmp_path / "logs", warehouse)
