"""A cluster of two workers runs jobs by the recipes of docs/spark.md, and writes the files of one process.

The driver is `spark-submit`, outside the cluster. Neither the workers' interpreter nor their directories have
konvene: it comes with a packed environment, or as one of the `--py-files`. The executor ids prove that the
executors did the work, not the driver.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.spark.cluster import HOST, SHORT_LIVED, cluster
from tests.pipeline.spark.environments import bare, packed, zip_of_konvene
from tests.pipeline.spark.test_engine import LOGS, checksums, made

from konvene.pipeline.engine import Local

TASK_BYTES = 20_000
PACKED_JOB = """
import json, os, sys, time
import konvene
from konvene.pipeline.gold.build import build
from konvene.pipeline.engine import Spark
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.session import build as session
from konvene.pipeline.warehouse.warehouse import Warehouse

logs, folder, task_bytes = sys.argv[1:]
spark = session()
context = spark.sparkContext
while context._jsc.sc().getExecutorMemoryStatus().size() < 3:  # the driver is one of them
    time.sleep(0.1)
engine, warehouse = Spark(spark), Warehouse(folder)
ingest(warehouse, [logs], engine, cluster="golden", task_bytes=int(task_bytes))
build(warehouse, engine)
rows = spark.read.format("konvene-log").option("taskBytes", task_bytes).load(logs)
def where(rows):
    import konvene
    yield os.environ.get("SPARK_EXECUTOR_DIRS", ""), konvene.__file__, sum(1 for _ in rows)
counted = rows.select("offset").rdd.mapPartitions(where).collect()
summary = {"executors": len({name for name, _, _ in counted}), "rows": sum(n for *_, n in counted)}
summary["places"] = sorted({place for _, place, n in counted if n})
tables = set(warehouse.tables()) - {"pipeline_run"}
summary["files"] = {f.path: f.sha256 for name in tables for f in warehouse.files(name)}
spark.stop()
print(json.dumps(summary))
"""
ZIPPED_JOB = """
import json, sys
from pyspark.sql import SparkSession
from konvene.pipeline.spark.register import register

spark = SparkSession.builder.getOrCreate()
register(spark)
log = spark.read.format("konvene-log")
rows = log.load(sys.argv[1])
def where(rows):
    import konvene
    yield konvene.__file__
places = rows.select("offset").rdd.mapPartitions(where).collect()
rebalances = log.option("table", "rebalance").load(sys.argv[1]).count()
summary = {"rows": rows.count(), "rebalances": rebalances, "places": sorted(set(places))}
spark.stop()
print(json.dumps(summary))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with everything but konvene."""
    return bare(tmp_path_factory.mktemp("environment"))


def submit(
    folder: Path, master: str, job: str, *words: object, environment: dict[str, str], options: list[str]
) -> dict[str, Any]:
    """Run a job with spark-submit in `folder`, and return the object that it prints."""
    import pyspark

    (folder / "job.py").write_text(job)
    home = Path(pyspark.__file__).parent
    command: list[object] = [home / "bin" / "spark-submit", "--master", master, *options]
    for name, value in {
        "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST, "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED, "spark.ui.enabled": "false",
    }.items():  # fmt: skip
        command += ["--conf", f"{name}={value}"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command), "job.py", *map(str, words)], cwd=folder, capture_output=True, text=True,
        env=kept | {"SPARK_HOME": str(home)} | environment, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_packed_environment_writes_the_same_files(master: str, python: Path, tmp_path: Path) -> None:
    """The link to the environment makes its path valid for the driver too."""
    if importlib.util.find_spec("venv_pack") is None:
        pytest.skip("venv-pack is not installed: pip install venv-pack")
    expected = made(tmp_path / "local", Local(), TASK_BYTES)
    archive = packed(python, tmp_path)
    (tmp_path / "environment").symlink_to(tmp_path / "packed")
    summary = submit(
        tmp_path, master, PACKED_JOB, LOGS / "consumer", tmp_path / "made", TASK_BYTES,
        environment={"PYSPARK_PYTHON": "./environment/bin/python"},
        options=["--archives", f"{archive.name}#environment"],
    )  # fmt: skip
    assert summary["files"] == checksums(expected)
    assert (summary["executors"], summary["rows"]) == (2, 350)
    assert all("work-" in place and "environment" in place for place in summary["places"])


def test_konvene_as_a_zip(master: str, python: Path, tmp_path: Path) -> None:
    """Spark does not find the data source in a zip, so the job registers it."""
    summary = submit(
        tmp_path, master, ZIPPED_JOB, LOGS / "consumer", environment={"PYSPARK_PYTHON": str(python)},
        options=["--py-files", zip_of_konvene(tmp_path).name],
    )  # fmt: skip
    assert summary["rows"] == 350
    assert summary["rebalances"] > 0
    assert all("konvene.zip" in place for place in summary["places"])
