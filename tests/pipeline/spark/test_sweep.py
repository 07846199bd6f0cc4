"""A sweep on Spark has the rows of a sweep in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.sim.interrupting import interrupted_sweep

from konvene.pipeline.engine import Local, Spark
from konvene.pipeline.sweeps.sweep import grid, read, sweep
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN
from konvene.sim.runs.what_if import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_sweep_has_the_rows_of_a_local_sweep(spark: SparkSession, tmp_path: Path) -> None:
    plans = grid(
        Plan(members=3, partitions=6, minutes=2, kill_rate=1), [("protocol", ["classic", "consumer"])]
    )
    assert sweep(tmp_path / "here", plans, range(6), Local(), slots=1) == 12
    assert sweep(tmp_path / "there", plans, range(6), Spark(spark), slots=2) == 12
    for table in (SIM_RUN, SIM_METRIC, SIM_REBALANCE):
        assert read(tmp_path / "there", table).equals(read(tmp_path / "here", table)), table


def test_interrupted_sweep_ends_with_its_jvm(tmp_path: Path) -> None:
    """No trace of Java or Python is printed."""
    process = interrupted_sweep(tmp_path, "--master", "local[1]")
    assert process.code == 130
    assert process.output[1].endswith(
        f"\ninterrupted after {process.runs} of 40 runs; the same command resumes from here\n"
    )
    for word in ("Traceback", "Exception", "ERROR", "\tat "):
        assert word not in process.output[1]
