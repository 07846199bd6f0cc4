"""Keeps what a stream gives, each row once, in files that a crash leaves right; or all that it comes to.

Spark does a micro-batch again that it does not know to be done. So each batch has a folder of its own,
`batch=<number>`, which is written anew whenever the batch is: nothing is there twice, and with the checkpoint
nothing is left out. The folder and the checkpoint belong together; to begin anew is to take others.

    log = spark.readStream.format("konvene-log").option("table", "offset_commit").load("/var/kafka-logs")
    query = save(log, "commits", checkpoint="commits.checkpoint")
    spark.read.parquet("commits")

`gold` keeps a whole warehouse, from bronze to gold. What a micro-batch has are not records but the parts of
logs that are new, a row for each; tasks read them and write files, as in an ingest, and then make gold of the
logs that grew, going on where they were (`konvene.pipeline.gold.resume`). Both steps end with a manifest,
and what
the warehouse has of a log stands in it. So a batch that is done again finds itself done, wholly or in part,
and the tables are those of `ingest` and `build`: the same code makes them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from konvene.pipeline.engine import Engine, Spark
from konvene.pipeline.gold.build import build
from konvene.pipeline.gold.worker import GOLD_OF
from konvene.pipeline.ingest.ingest import take
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from konvene.pipeline.sources.plan import Slice

__all__ = ["gold", "save", "step"]


def save(
    rows: DataFrame, folder: str, *, checkpoint: str, every: str = "10 seconds", once: bool = False
) -> StreamingQuery:
    """Begin to write a stream's rows to `folder` as Parquet.

    `every` is the pause between batches; with `once` the query ends when all is read that was there."""

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
    **options: Any,
) -> StreamingQuery:
    """Begin to keep the tables of a warehouse up with logs, up to gold.

    `logs` are paths, or nothing where `options` name a live cluster (`kafka.bootstrap.servers`); other
    options are those of the data source. `kinds`: of gold only what is made by these, such as `("groups",)`.
    No other process may write to the warehouse meanwhile; all may read it."""
    paths = [logs] if isinstance(logs, str) else list(logs)
    reader = spark.readStream.format("konvene-log").option("table", "log_part").options(**options)
    if paths:
        reader = reader.option("paths", json.dumps(paths))
    cluster = str(options.get("cluster", ""))

    def work(batch: DataFrame, _: int) -> None:
        from konvene.pipeline.sources.decode import part_of

        parts = [part_of(row) for row in batch.collect()]
        step(Warehouse(warehouse), parts, Spark(batch.sparkSession), paths, cluster, kinds)

    return _begun(reader.load(), work, checkpoint, every, once)


def step(
    warehouse: Warehouse, parts: list[Slice], engine: Engine, paths: list[str], cluster: str = "",
    kinds: Collection[str] = tuple(GOLD_OF),
) -> None:  # fmt: skip
    """What a micro-batch of `gold` does."""
    take(warehouse, parts, engine, paths, cluster)
    build(warehouse, engine, kinds=kinds, goes_on=True)


def _begun(rows: DataFrame, work: Any, checkpoint: str, every: str, once: bool) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    return writer.trigger(**trigger).start()
