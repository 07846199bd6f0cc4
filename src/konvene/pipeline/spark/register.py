"""Makes the data source `konvene-log` known to a session of Spark's.

With the wheel installed Spark finds it by itself, by the package `pyspark_konvene`. `register` is for where
that package cannot be found: executors that got konvene as an archive, or a session that had looked before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let `spark.read.format("konvene-log")` and `spark.readStream.format("konvene-log")` work."""
    from konvene.pipeline.sources.konvene_log import KonveneLog

    spark.dataSource.register(KonveneLog)
