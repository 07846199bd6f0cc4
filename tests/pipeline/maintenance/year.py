"""A stream of many micro-batches, with optimize and vacuum in between, beside one batch of the same logs.

`python -m tests.pipeline.maintenance.year 2190` simulates a year of batches every four hours, and prints what
a batch and opening the warehouse take meanwhile."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable
from tests.pipeline import streaming
from tests.pipeline.segments import all_files, log, rows_of, write

from konvene.pipeline.engine import Local
from konvene.pipeline.maintenance.optimize import optimize
from konvene.pipeline.maintenance.vacuum import vacuum
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse.warehouse import Warehouse

Watch = Callable[[int, Warehouse], None]


def stream(
    home: Path, logs: Path, records: int, optimize_every: int, vacuum_every: int, watch: Watch | None = None
) -> Warehouse:
    """Process the logs in micro-batches of about so many records; return the warehouse at the end."""
    warehouse = Warehouse(home)
    for number, parts in enumerate(streaming.steps(logs, records), 1):
        step(warehouse, parts, Local(), [str(logs)])
        if number % optimize_every == 0:
            optimize(Warehouse(home), Local())
        if number % vacuum_every == 0:
            vacuum(Warehouse(home), timedelta())
        if watch is not None:
            watch(number, warehouse)
    optimize(warehouse, Local())
    vacuum(warehouse, timedelta())
    return warehouse


def assert_equal(home: Path, logs: Path, warehouse: Warehouse) -> None:
    """Compare a warehouse with one batch of the same logs, and with what other engines count."""
    once = streaming.built_at_once(home, logs)
    assert rows_of(warehouse) == rows_of(once)
    assert all_files(warehouse) == set(warehouse.snapshot.files)
    for name in warehouse.tables():
        rows = sum(file.rows for file in warehouse.files(name))
        assert DeltaTable(str(warehouse.path / name)).to_pyarrow_dataset().count_rows() == rows, name


def main(batches: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        home, cpu = Path(name), time.process_time()
        write(home / "logs", log(11, batches), cuts=range(500, batches, 500))

        def report(number: int, warehouse: Warehouse) -> None:
            nonlocal cpu
            if number % 100:
                return
            now = time.process_time()
            Warehouse(home / "w")
            opened = time.process_time() - now
            entries = sum(len(os.listdir(folder)) for folder in (home / "w").glob("*/_delta_log"))  # noqa: PTH208
            sys.stdout.write(
                f"{number:6,} batches: {10 * (now - cpu):.0f} ms CPU each; opening {1000 * opened:.0f} ms; "
                f"{len(warehouse.snapshot.files)} files; {entries} log entries\n"
            )
            sys.stdout.flush()
            cpu = time.process_time()

        warehouse = stream(home / "w", home / "logs", 1, 6, 42, report)
        assert_equal(home / "once", home / "logs", warehouse)
        sys.stdout.write(f"{warehouse.snapshot.number:,} steps: all rows are those of one batch\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
