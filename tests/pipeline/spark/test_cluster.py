"""A cluster of two workers writes the files that one process writes, and returns the same rows.

The driver is a process of its own, because a process has one session, and that of these tests is local. The
executor ids prove that the executors did the work, not the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.pipeline.spark.cluster import HOST, SHORT_LIVED, cluster
from tests.pipeline.spark.test_engine import LOGS, checksums, made

from konvene.pipeline.engine import Local

TASK_BYTES = 20_000
DRIVER = """
import json, os, sys, time
from konvene.pipeline.gold.build import build
from konvene.pipeline.engine import Spark
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.session import build as session
from konvene.pipeline.warehouse.warehouse import Warehouse

master, host, java, logs, folder, task_bytes = sys.argv[1:]
spark = session(
    master, spark_executor_memory="512m", spark_driver_host=host,
    spark_driver_extraJavaOptions=java, spark_executor_extraJavaOptions=java,
    **{"spark.driver.bindAddress": host},
)
context = spark.sparkContext
while context._jsc.sc().getExecutorMemoryStatus().size() < 3:  # the driver is one of them
    time.sleep(0.1)
engine, warehouse = Spark(spark), Warehouse(folder)
ingest(warehouse, [logs], engine, cluster="golden", task_bytes=int(task_bytes))
build(warehouse, engine)
rows = spark.read.format("konvene-log").option("taskBytes", task_bytes).load(logs)
def where(rows):
    yield os.environ.get("SPARK_EXECUTOR_DIRS", ""), sum(1 for _ in rows)
counted = rows.select("offset").rdd.mapPartitions(where).collect()
summary = {"executors": len({name for name, _ in counted}), "rows": sum(n for _, n in counted)}
tables = set(warehouse.tables()) - {"pipeline_run"}
summary["files"] = {f.path: f.sha256 for name in tables for f in warehouse.files(name)}
spark.stop()
print(json.dumps(summary))
"""


def test_cluster_writes_the_same_files(tmp_path: Path) -> None:
    expected = made(tmp_path / "local", Local(), TASK_BYTES)
    with cluster(tmp_path) as master:
        command = [sys.executable, "-c", DRIVER, master, HOST, SHORT_LIVED, str(LOGS / "consumer")]
        command += [str(tmp_path / "made"), str(TASK_BYTES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["files"] == checksums(expected)
    assert summary["executors"] == 2
    assert summary["rows"] == 350
