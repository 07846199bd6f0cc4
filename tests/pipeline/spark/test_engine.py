"""Spark's workers write the same files as the local engine, even if they are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from konvene.pipeline.engine import Engine, Local, Spark
from konvene.pipeline.gold import build as builder
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.frames import frames, views
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
TASK_BYTES = 4096
"""Task size that is small enough for many tasks."""


def made(folder: Path, engine: Engine, task_bytes: int = TASK_BYTES) -> Warehouse:
    warehouse = Warehouse(folder)
    ingest(warehouse, [LOGS / "consumer"], engine, cluster="golden", task_bytes=task_bytes)
    build(warehouse, engine)
    return warehouse


def allocator(_: int) -> str:
    import pyarrow as pa

    return str(pa.default_memory_pool().backend_name)


def test_workers_return_freed_memory_to_the_system(spark: SparkSession) -> None:
    assert list(Spark(spark).run(allocator, [0])) == ["system"]


def checksums(warehouse: Warehouse) -> Mapping[str, str]:
    tables = set(warehouse.tables()) - {"pipeline_run"}
    return {file.path: file.sha256 for table in tables for file in warehouse.files(table)}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return made(tmp_path_factory.mktemp("local"), Local())


def test_spark_writes_the_same_files(spark: SparkSession, local: Warehouse, tmp_path: Path) -> None:
    by_spark = made(tmp_path / "spark", Spark(spark))
    assert checksums(by_spark) == checksums(local)
    assert len(checksums(local)) > 10


def test_the_shuffle_writes_the_files_of_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets read by tasks or spread by Spark, and with no rows at all."""
    monkeypatch.setattr(builder, "number", lambda rows, rows_per_bucket: 4)
    found = []
    for name, engine in (("local", Local()), ("shuffle", Spark(spark, shuffle_from=2))):
        warehouse = Warehouse(tmp_path / name)
        ingest(warehouse, [LOGS / "transactions"], Local(), cluster="golden")
        report = build(warehouse, engine)
        found.append((report.tasks, checksums(warehouse)))
    assert found[0] == found[1]
    assert any("of4" in path for path in found[0][1])


class DiesOnce:
    """A task that kills its worker on the first attempt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, task: int) -> tuple[int, int]:
        tried = self.folder / f"{task}"
        if not tried.exists():
            tried.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task, task * task


def test_task_of_a_killed_worker_is_retried(spark: SparkSession, tmp_path: Path) -> None:
    """Another worker runs the task again."""
    found = sorted(Spark(spark).run(DiesOnce(tmp_path), [1, 2]))
    assert found == [(1, 1), (2, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_error_of_a_task_is_raised_by_the_driver(spark: SparkSession) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PythonException

    with pytest.raises((PythonException, Py4JJavaError), match="invalid literal for int"):
        list(Spark(spark).run(int, ["1", "x"]))
    assert list(Spark(spark).run(int, [])) == []
    assert repr(Spark(spark)) == "Spark(local[2,4])"


def test_data_frames_have_the_rows_of_the_warehouse(spark: SparkSession, local: Warehouse) -> None:
    """Compares several tables, one of them empty."""
    made = frames(spark, local)
    for name in ("rebalance", "ownership", "topic_name", "pipeline_run", "share_delivery"):
        expected = read.table(local, name)
        assert made[name].columns == expected.column_names
        assert sorted(map(repr, made[name].toArrow().to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert made["rebalance"].count() > 0
    assert made["share_delivery"].count() == 0


def test_silver_row_is_valid_until_the_next_row_of_its_key(spark: SparkSession, local: Warehouse) -> None:
    """Spark's window function gives the same validity as a scan from the end."""
    name = "consumer_group_current_member_assignment"
    expected = [row for batch in read.validity(local, name) for row in batch.to_pylist()]
    found = frames(spark, local)[name].toArrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert any(row["valid_to_ms"] is not None for row in found)


def test_tables_can_be_queried_in_sql(spark: SparkSession, local: Warehouse) -> None:
    assert "group_health" in views(spark, local)
    (row,) = spark.sql("select count(distinct group_id) as groups from rebalance").collect()
    groups = read.table(local, "rebalance", ["group_id"]).column("group_id").unique()
    assert row.groups == len(groups)
