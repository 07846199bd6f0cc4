"""A warehouse's tables as Spark data frames, for SQL: `frames(spark, warehouse)["rebalance"]`.

A frame has the files of the warehouse's snapshot when it was created; later steps do not change it.
Silver's frames have the validity of rows (`valid_to_offset`, `valid_to_ms`: offset and time of the next
record of the same key, null if there is none), computed by a window, since it depends on later records.

The files must be at the same path for executors: on this machine, or on shared storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["frame", "frames", "views"]

SILVER = frozenset(table.name for table in TYPED.values())


def frames(spark: SparkSession, warehouse: Warehouse) -> dict[str, DataFrame]:
    """Return a data frame for every table, by name; a table without files is empty."""
    return {name: frame(spark, warehouse, name) for name in sorted({*TABLES, *SILVER})}


def views(spark: SparkSession, warehouse: Warehouse) -> list[str]:
    """Register every table as a temporary view and return their names: `spark.sql("select * from
    rebalance")`."""
    made = frames(spark, warehouse)
    for name, each in made.items():
        each.createOrReplaceTempView(name)
    return list(made)


def frame(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame:
    """Return the data frame of one table. Raises KeyError for an unknown table."""
    from konvene.pipeline.sources.types import spark_schema

    schema = spark_schema(read.schema_of(name))
    paths = [str(warehouse.where(file)) for file in warehouse.files(name)]
    if paths:
        found = spark.read.schema(schema).parquet(*paths)
    else:
        found = spark.createDataFrame([], schema)
    return _with_validity(found, name) if name in SILVER else found


def _with_validity(rows: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_a_key = Window.partitionBy("cluster", "log_topic", "log_partition", *read.key_of(name))
    following = of_a_key.orderBy("offset")
    return rows.withColumns(
        {
            "valid_to_offset": f.lead("offset").over(following),
            "valid_to_ms": f.lead("timestamp_ms").over(following),
        }
    )
