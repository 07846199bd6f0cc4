"""Gold of a Spark stream equals gold that is built at once, byte for byte, over restarts and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.reduce.playing import Played
from tests.pipeline.segments import LOGS, all_files
from tests.pipeline.sources.test_live import GROUPS, commit
from tests.pipeline.spark.cluster import SHORT_LIVED
from tests.pipeline.streaming import built_at_once, gold_rows, sums, write_simulated_logs

from konvene.pipeline.gold.resume import HOME
from konvene.pipeline.spark import stream as streams
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, home: Path, logs: Path | None, **options: Any) -> Warehouse:
    """Stream everything that is available, then stop."""
    paths = [] if logs is None else [str(logs)]
    query = streams.gold(
        spark, paths, str(home / "w"), checkpoint=str(home / "checkpoint"), once=True, **options
    )
    query.awaitTermination()
    return Warehouse(home / "w")


class FailingStep:
    """A step that fails at the third batch: before it, between its two commits, or after both."""

    def __init__(self, where: str) -> None:
        self.where, self.batches, self.takes, self.builds = where, 0, streams.take, streams.build

    def __repr__(self) -> str:
        return f"Breaks({self.where!r})"

    def take(self, *given: Any, **more: Any) -> Any:
        self.batches += 1
        self._at("before")
        return self.takes(*given, **more)

    def build(self, *given: Any, **more: Any) -> Any:
        self._at("between")
        made = self.builds(*given, **more)
        self._at("behind")
        return made

    def _at(self, where: str) -> None:
        if self.batches == 3 and self.where == where:
            raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("name", "where"),
    [("classic", "before"), ("consumer", "between"), ("streams", "behind")],
)
def test_interrupted_stream_of_golden_logs_writes_the_files_of_one_build(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    """The stream fails, and a second run resumes it."""
    from pyspark.errors import StreamingQueryException

    breaks = FailingStep(where)
    with monkeypatch.context() as patch:
        patch.setattr(streams, "take", breaks.take)
        patch.setattr(streams, "build", breaks.build)
        with pytest.raises(StreamingQueryException, match="the disk is gone"):
            run(spark, tmp_path, LOGS / name, maxRecordsPerTrigger=60)
    assert breaks.batches == 3
    warehouse = run(spark, tmp_path, LOGS / name, maxRecordsPerTrigger=200)
    whole = built_at_once(tmp_path / "whole", LOGS / name)
    assert sums(warehouse) == sums(whole)
    for table in ("coordinator_record", "log_span", "offset_commit"):
        assert _without_places(warehouse, table) == _without_places(whole, table), table
    kept = {path for path in all_files(warehouse) if not path.startswith(HOME)}
    assert kept >= set(warehouse.snapshot.files)


def _without_places(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    return read.table(warehouse, table).to_pylist()


def test_streamed_simulation_has_the_coordinators_rebalances(spark: SparkSession, tmp_path: Path) -> None:
    """The log grows between two runs, and the rows match what the coordinator explained live."""
    played = Played("consumer", 2, steps=600)
    logs = write_simulated_logs(tmp_path / "logs", played)
    log = logs / "__consumer_offsets-0" / f"{0:020}.log"
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 2])
    first = run(spark, tmp_path, logs, maxRecordsPerTrigger=100)
    assert read.table(first, "rebalance").num_rows > 0
    with log.open("r+b") as file:  # Write in place, as a broker does.
        file.write(data)
    warehouse = run(spark, tmp_path, logs, maxRecordsPerTrigger=100)
    assert sums(warehouse) == sums(built_at_once(tmp_path / "whole", logs))
    names = {row["topic_id"]: row["topic"] for row in read.table(warehouse, "topic_name").to_pylist()}
    rows = gold_rows(warehouse)
    for table, expected in played.rows(audit=True, names=names).items():
        assert [row | {"cluster": "c"} for row in rows[table]] == expected, table


@pytest.mark.konvene(topics={"orders": 1})
def test_live_cluster_is_streamed_without_duplicates(
    spark: SparkSession, konvene: Konvene, tmp_path: Path
) -> None:
    """Fetches in steps that also end in the middle of batches."""
    options = {"kafka.bootstrap.servers": konvene.bootstrap, "maxRecordsPerTrigger": 5}
    commit(konvene, GROUPS, 1)
    run(spark, tmp_path, None, **options)
    commit(konvene, GROUPS, 2)
    warehouse = run(spark, tmp_path, None, **options)
    records = read.table(warehouse, "coordinator_record", ["partition", "offset"]).to_pylist()
    assert len(records) == len({(r["partition"], r["offset"]) for r in records}) == 2 * len(GROUPS)
    assert read.table(warehouse, "lag").num_rows >= len(GROUPS)


CHILD = """
import sys
from konvene.pipeline.spark import stream
from konvene.pipeline.spark.session import build

home, logs, java = sys.argv[1:]
spark = build("local[1]", spark_local_dir=home + "/local", spark_driver_extraJavaOptions=java)
limit = {"maxRecordsPerTrigger": 60}
stream.gold(spark, logs, home + "/w", checkpoint=home + "/checkpoint", once=True, **limit).awaitTermination()
"""


def test_killed_driver_loses_and_duplicates_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The streaming driver is killed with SIGKILL; another process resumes from its checkpoint."""
    logs = LOGS / "consumer"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(logs), SHORT_LIVED], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list((tmp_path / "w" / "_steps" / "_delta_log").glob("*3.json")):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    warehouse = run(spark, tmp_path, logs, maxRecordsPerTrigger=200)
    whole = built_at_once(tmp_path / "whole", logs)
    assert sums(warehouse) == sums(whole)
    assert read.table(warehouse, "coordinator_record").equals(read.table(whole, "coordinator_record"))
