"""Keeps what a stream gives, each row once, in files that a crash leaves right.

Spark does a micro-batch again that it does not know to be done. So each batch has a folder of its own,
`batch=<number>`, which is written anew whenever the batch is: nothing is there twice, and with the checkpoint
nothing is left out. The folder and the checkpoint belong together; to begin anew is to take others.

    log = spark.readStream.format("konvene-log").option("table", "offset_commit").load("/var/kafka-logs")
    query = save(log, "commits", checkpoint="commits.checkpoint")
    spark.read.parquet("commits")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["save"]


def save(
    rows: DataFrame, folder: str, *, checkpoint: str, every: str = "10 seconds", once: bool = False
) -> StreamingQuery:
    """Begin to write a stream's rows to `folder` as Parquet.

    `every` is the pause between batches; with `once` the query ends when all is read that was there."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/batch={number}")

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    return writer.trigger(**trigger).start()
