"""A cluster of two workers makes the files that one process makes, and answers as it does.

The driver is a process of its own, as it is for who has a cluster: a process has one session, and the one of
these tests is local. That the cluster's executors did the work, not the driver, is told by their ids.
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
told = {"executors": len({name for name, _ in counted}), "rows": sum(n for _, n in counted)}
told["files"] = {f.path: f.sha256 for name in warehouse.tables() for f in warehouse.files(name)}
spark.stop()
print(json.dumps(told))
"""


def test_a_cluster_makes_the_same_files(tmp_path: Path) -> None:
    expected = made(tmp_path / "local", Local(), TASK_BYTES)
    with cluster(tmp_path) as master:
        words = [sys.executable, "-c", DRIVER, master, HOST, SHORT_LIVED, str(LOGS / "consumer")]
        words += [str(tmp_path / "made"), str(TASK_BYTES)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["files"] == checksums(expected)
    assert told["executors"] == 2
    assert told["rows"] == 350
