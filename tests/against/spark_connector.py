"""Spark's own Kafka connector: its jars, and the rows of both sources as a program that prints them.

    python -m tests.against.spark_connector BOOTSTRAP TOPIC ISOLATION

prints one line of JSON for each format, with the rows of a batch query, in order.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .brokers import HERE, maven

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "connector_jars", "load", "session"]

FORMATS = ("kafka", "konvene")


def connector_jars() -> list[Path]:
    """Return the connector's jars, which Maven fetches the first time. Raises `Unavailable`."""
    jars = HERE / "spark" / "target" / "dependency"
    maven(
        HERE / "spark", "dependency:copy-dependencies",
        unless=lambda: any(jars.glob("spark-sql-kafka-*.jar")),
    )  # fmt: skip
    return sorted(jars.glob("*.jar"))


def session(cores: int, folder: Path) -> SparkSession:
    """Start a Spark session that has both sources."""
    from konvene.pipeline.spark.session import build

    jars = ",".join(map(str, connector_jars()))
    return build(f"local[{cores}]", app_name="both sources", spark_local_dir=str(folder), spark_jars=jars)


def load(spark: SparkSession, name: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """Return a topic's records as a frame of one of the `FORMATS`."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format(name).options(**given, **options).load()


def main() -> None:
    bootstrap, topic, isolation = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        spark = session(2, Path(folder))
        for name in FORMATS:
            frame = load(
                spark, name, bootstrap, topic, includeHeaders="true", **{"kafka.isolation.level": isolation}
            )
            ordered = frame.selectExpr("to_json(struct(*)) AS row").orderBy("row")
            sys.stdout.write(json.dumps([frame.dtypes, [row.row for row in ordered.collect()]]) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
