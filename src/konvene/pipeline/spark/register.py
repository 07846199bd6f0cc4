"""Registers the data source `konvene-log` with a Spark session.

With the wheel installed, Spark finds the source through the package `pyspark_konvene`. Use `register` where
that package cannot be found: executors that received konvene as an archive, or a session that was started
before the installation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the source, so that `spark.read.format("konvene-log")` and
    `spark.readStream.format("konvene-log")` work."""
    from konvene.pipeline.sources.konvene_log import KonveneLog

    spark.dataSource.register(KonveneLog)
