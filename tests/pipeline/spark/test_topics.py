"""`format("konvene")` under Spark: batch, stream, restart from a checkpoint, errors that reach the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture(scope="module")
def broker() -> Iterator[Konvene]:
    with Konvene() as konvene:
        konvene.create_topic("orders", partitions=3)
        produce(konvene, "orders", 0, 300)
        yield konvene


def produce(konvene: Konvene, topic: str, first: int, count: int) -> None:
    for partition in range(3):
        values = [f"value {n}" for n in range(first, first + count) if n % 3 == partition]
        konvene.produce(topic, values, partition=partition)


def options(konvene: Konvene, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": konvene.bootstrap, "subscribe": "orders", **more}


def test_a_batch_has_sparks_columns_and_every_record(spark: SparkSession, broker: Konvene) -> None:
    frame = spark.read.format("konvene").options(**options(broker)).load()
    assert frame.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"),
        ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int"),
    ]  # fmt: skip
    found = frame.selectExpr("CAST(value AS STRING) value", "partition", "offset").collect()
    assert {row.value for row in found} == {f"value {n}" for n in range(300)}
    assert {(row.partition, row.offset) for row in found} == {(p, n) for p in range(3) for n in range(100)}


def test_a_batch_is_divided_into_tasks(spark: SparkSession, broker: Konvene) -> None:
    more = {"startingOffsets": '{"orders":{"0":-2,"1":40,"2":90}}', "minPartitions": "6"}
    frame = spark.read.format("konvene").options(**options(broker, **more)).load()
    assert frame.rdd.getNumPartitions() == 7
    assert sorted(frame.groupBy("partition").count().collect()) == [(0, 100), (1, 60), (2, 10)]


def test_an_explicit_schema_selects_columns(spark: SparkSession, broker: Konvene) -> None:
    reader = spark.read.format("konvene").schema(
        "offset bigint, headers array<struct<key string, value binary>>"
    )
    row = reader.options(**options(broker)).load().first()
    assert row is not None and row.asDict() == {"offset": row.offset, "headers": None}


@pytest.mark.parametrize(
    "more, message",
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "nothing-here"}, "the topic nothing-here cannot be read: "),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "startingOffsets must name all partitions"),
    ],
)
def test_errors_reach_the_user(
    spark: SparkSession, broker: Konvene, more: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception) as raised:
        spark.read.format("konvene").options(**options(broker, **more)).load().count()
    assert message in str(raised.value)


def drain(spark: SparkSession, konvene: Konvene, folder: Path, **more: str) -> StreamingQuery:
    """Run a streaming query up to the end of the topic, into files."""
    given = options(konvene, startingOffsets="earliest", **more)
    frame: DataFrame = spark.readStream.format("konvene").options(**given).load()
    writer = frame.selectExpr("CAST(value AS STRING) value").writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    started = query.start(str(folder / "rows"))
    assert started.awaitTermination(120)
    return started


def test_a_stream_reads_each_record_once_over_restarts(
    spark: SparkSession, broker: Konvene, tmp_path: Path
) -> None:
    broker.create_topic("growing", partitions=3)
    produce(broker, "growing", 0, 90)
    first = drain(spark, broker, tmp_path, subscribe="growing", maxOffsetsPerTrigger="40")
    sizes = [each["numInputRows"] for each in first.recentProgress]
    assert sum(sizes) == 90 and max(sizes) <= 42
    produce(broker, "growing", 90, 30)
    again = drain(spark, broker, tmp_path, subscribe="growing")
    assert sum(each["numInputRows"] for each in again.recentProgress) == 30
    values = [row.value for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(values) == sorted(f"value {n}" for n in range(120))
    ends: Any = again.lastProgress
    assert json.loads(ends["sources"][0]["endOffset"]) == {"growing": {"0": 40, "1": 40, "2": 40}}


def test_a_stream_fails_if_its_topic_was_deleted(
    spark: SparkSession, broker: Konvene, tmp_path: Path
) -> None:
    broker.create_topic("short-lived", partitions=1)
    broker.produce("short-lived", [f"value {n}" for n in range(5)])
    drain(spark, broker, tmp_path, subscribe="short-lived")
    broker.delete_topic("short-lived")
    broker.create_topic("short-lived", partitions=1)
    with pytest.raises(Exception, match="short-lived-0 ends at offset 0, and was read up to 5"):
        drain(spark, broker, tmp_path, subscribe="short-lived")
    assert drain(spark, broker, tmp_path, subscribe="short-lived", failOnDataLoss="false").exception() is None
