"""Registers the data sources `konvene` and `konvene-log` with a Spark session.

With the wheel installed, Spark finds them through the packages `pyspark_konvene` and `pyspark_konvene_log`.
Use `register` where these cannot be found: executors that received konvene as an archive, or a session that
was started before the installation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the sources, so that `spark.read.format("konvene")` and the others work."""
    from konvene.pipeline.sources.konvene_log import KonveneLog
    from konvene.spark.source import Konvene

    spark.dataSource.register(Konvene)
    spark.dataSource.register(KonveneLog)
