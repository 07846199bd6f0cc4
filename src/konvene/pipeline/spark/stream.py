"""Streaming sinks: a stream's rows as Parquet files, exactly once, or a whole warehouse that follows logs.

Spark repeats a micro-batch whose completion it has not recorded. So each batch has a folder of its own,
`batch=<number>`, which a repetition overwrites: no row is written twice, and with the checkpoint none is
lost. The folder and the checkpoint belong together; to start over, use new ones.

    log = spark.readStream.format("konvene-log").option("table", "offset_commit").load("/var/kafka-logs")
    query = save(log, "commits", checkpoint="commits.checkpoint")
    spark.read.parquet("commits")

`gold` keeps a whole warehouse up to date, from bronze to gold. Its micro-batches contain rows about the new
parts of logs instead of records; tasks read these parts and write files, as in an ingest, and then update
gold of the logs that grew, resuming stored state (`konvene.pipeline.gold.resume`). Both steps end with a
commit that records which offsets of a log the warehouse has. So a repeated batch finds itself completed,
wholly or in part. The tables are those of `ingest` and `build`, made by the same code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from konvene.pipeline.engine import Engine, Spark
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.worker import GOLD_OF
from konvene.pipeline.ingest.ingest import take
from konvene.pipeline.sources.client_config import client_config
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from konvene.pipeline.sources.plan import Slice

__all__ = ["gold", "save", "step"]

PATIENCE_S = 3600
"""How long a batch waits for another writer of the warehouse, such as `konvene explain optimize`."""


def save(
    rows: DataFrame, folder: str, *, checkpoint: str, every: str = "10 seconds", once: bool = False
) -> StreamingQuery:
    """Start a query that writes a stream's rows to `folder` as Parquet.

    `every` is the interval between batches; with `once` the query ends when all available rows are read."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/batch={number}")

    return _begun(rows, write, checkpoint, every, once)


def gold(
    spark: SparkSession,
    logs: str | Iterable[str],
    warehouse: str,
    *,
    checkpoint: str,
    every: str = "10 seconds",
    once: bool = False,
    kinds: Collection[str] = tuple(GOLD_OF),
    **options: str | int,
) -> StreamingQuery:
    """Start a query that keeps a warehouse up to date with logs, up to gold.

    `logs` are paths; none if `options` name a live cluster (`kafka.bootstrap.servers`). Other options are
    those of the data source. `kinds` limits gold to the tables of these tasks, such as `("groups",)`. No
    other process may write to the warehouse meanwhile; any may read it."""
    paths = [logs] if isinstance(logs, str) else list(logs)
    reader = spark.readStream.format("konvene-log").option("table", "log_part").options(**options)
    if paths:
        reader = reader.option("paths", json.dumps(paths))
    cluster = str(options.get("cluster", ""))
    client = client_config({name: str(value) for name, value in options.items()})
    home = Warehouse(warehouse, patience_s=PATIENCE_S)

    def work(batch: DataFrame, _: int) -> None:
        from konvene.pipeline.sources.decode import part_of

        parts = [part_of(row, client) for row in batch.collect()]
        step(home, parts, Spark(batch.sparkSession), paths, cluster, kinds)

    return _begun(reader.load(), work, checkpoint, every, once)


def step(
    warehouse: Warehouse, parts: list[Slice], engine: Engine, paths: list[str], cluster: str = "",
    kinds: Collection[str] = tuple(GOLD_OF),
) -> None:  # fmt: skip
    """Process one micro-batch of `gold`: ingest the parts and build gold."""
    take(warehouse, parts, engine, paths, cluster)
    build(warehouse, engine, kinds=kinds, goes_on=True)


def _begun(
    rows: DataFrame, work: Callable[[DataFrame, int], None], checkpoint: str, every: str, once: bool
) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    return writer.start()
