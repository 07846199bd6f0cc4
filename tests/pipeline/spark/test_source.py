"""Rows that the Spark data source reads equal those read without Spark, restricted to the selection.

These tests do not register the data source: Spark finds it by its package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.pipeline.segments import START_MS, write
from tests.pipeline.sources.test_live import GROUPS, commit

from konvene.codec.batches import Record
from konvene.pipeline.sources.decode import Reading, reading
from konvene.pipeline.sources.plan import Files, Source
from konvene.pipeline.spark.stream import save
from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGS = Path(__file__).parents[2] / "vectors" / "logs"


def read(spark: SparkSession, table: str, *paths: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("konvene-log").option("table", table).options(**options)
    return reader.load([str(path) for path in paths]) if paths else reader.load()


def without_spark(table: str, source: Source) -> pa.Table:
    """Return the rows of all tasks in order."""
    how: Reading = reading(table)
    places = source.places(how.wanted)
    parts = source.slices(how.wanted, {}, {of: place.next for of, place in places.items()})
    return pa.Table.from_batches([rows for part in parts for rows in how.batches(part)], how.schema)


def rows(table: pa.Table) -> list[str]:
    """Return sorted rows, so that their order does not depend on tasks."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(
    ("scenario", "table"),
    [
        ("share", "coordinator_record"),
        ("classic", "offset_commit"),
        ("streams", "streams_group_topology"),
        ("share", "share_snapshot"),
        ("transactions", "transaction_log"),
    ],
)
def test_a_table_has_the_same_rows_as_without_spark(spark: SparkSession, scenario: str, table: str) -> None:
    """Reads Kafka's golden logs, with nested columns, nulls and bytes."""
    frame = read(spark, table, LOGS / scenario)
    expected = without_spark(table, Files((str(LOGS / scenario),)))
    assert frame.columns == expected.column_names
    assert expected.num_rows > 0
    assert rows(frame.toArrow()) == rows(expected)


def test_filters_of_one_query_do_not_affect_the_next(spark: SparkSession) -> None:
    """Spark offers filters to the source, which must not keep them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, "coordinator_record", LOGS / "consumer", taskBytes=1)
        assert frame.where("partition = 1 and offset > 10 and offset <= 20").count() == 10
        assert frame.where("partition = 0").count() == 183
        assert frame.count() == 350
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_options_select_partitions_and_offsets(spark: SparkSession) -> None:
    some = read(spark, "coordinator_record", LOGS / "consumer", partitions="1", offsets="11-20")
    assert [(row.partition, row.offset) for row in some.collect()] == [(1, n) for n in range(11, 21)]


def test_only_selected_columns_reach_spark(spark: SparkSession) -> None:
    reader = spark.read.format("konvene-log").schema("value binary, offset bigint")
    frame = reader.load(str(LOGS / "consumer"))
    assert frame.columns == ["value", "offset"]
    expected = without_spark("coordinator_record", Files((str(LOGS / "consumer"),)))
    assert rows(frame.toArrow()) == rows(expected.select(["value", "offset"]))


def test_invalid_options_are_rejected_with_a_message(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="konvene-log has no option maxrecordspertriger"):
        read(spark, "coordinator_record", LOGS, maxRecordsPerTriger=1).count()


@pytest.mark.konvene(topics={"orders": 1}, folder=True)
def test_live_broker_gives_the_rows_of_its_files(
    spark: SparkSession, konvene: Konvene, tmp_path: Path
) -> None:
    """Only file positions differ, which a fetch does not return."""
    commit(konvene, GROUPS, 7)
    konvene.produce("orders", [b"a", b"b"], partition=0)
    live = read(spark, "coordinator_record", **{"kafka.bootstrap.servers": konvene.bootstrap})
    files = read(spark, "coordinator_record", tmp_path / "konvene")
    nowhere = ("segment_base_offset", "file_position")
    assert rows(live.drop(*nowhere).toArrow()) == rows(files.drop(*nowhere).toArrow())
    assert {(row.segment_base_offset, row.file_position) for row in live.collect()} == {(-1, -1)}
    assert live.count() == len(GROUPS)
    commits = read(spark, "offset_commit", **{"kafka.bootstrap.servers": konvene.bootstrap})
    assert {(row.group, row.committed_offset) for row in commits.collect()} == {(g, 7) for g in GROUPS}
    for records in (
        spark.read.format("konvene-log").load(str(tmp_path / "konvene" / "orders-0")),
        read(spark, "record", topics="orders", **{"kafka.bootstrap.servers": konvene.bootstrap}),
    ):
        assert [(row.offset, row.value, row.headers) for row in records.collect()] == [
            (0, b"a", []), (1, b"b", []),
        ]  # fmt: skip
    ends = read(spark, "log_end", tmp_path / "konvene").collect()
    assert [(row.topic, row.base_offset, row.log_end_offset) for row in ends] == [("orders", 0, 2)]


def test_stream_reads_records_of_users_topics(spark: SparkSession, tmp_path: Path) -> None:
    log = [[Record(at, START_MS, None, b"%d" % at)] for at in range(5)]
    write(tmp_path / "logs", log, topic="orders", cuts=[2])
    records = spark.readStream.format("konvene-log").option("maxRecordsPerTrigger", 2)
    rows = records.load(str(tmp_path / "logs" / "orders-0"))
    save(rows, str(tmp_path / "rows"), checkpoint=str(tmp_path / "checkpoint"), once=True).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(row.value for row in found.collect()) == [b"0", b"1", b"2", b"3", b"4"]


def test_logs_without_the_table_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """The message names the table to ask for, in batch reads and in streams."""
    from pyspark.errors import PySparkException

    write(tmp_path, [[Record(0, START_MS, None, b"a")]], topic="orders")
    message = "logs of orders do not have the table rebalance: ask for the table record"
    with pytest.raises(PySparkException, match=message):
        read(spark, "rebalance", tmp_path).count()
    stream = spark.readStream.format("konvene-log").option("table", "rebalance").load(str(tmp_path))
    with pytest.raises(PySparkException, match=r"konvene\.pipeline\.spark\.stream\.gold"):
        save(stream, str(tmp_path / "rows"), checkpoint=str(tmp_path / "checkpoint")).awaitTermination()


def test_empty_source_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "__consumer_offsets-0").mkdir()
    (tmp_path / "__consumer_offsets-0" / "00000000000000000000.log").touch()
    assert read(spark, "coordinator_record", tmp_path).count() == 0


def test_source_can_be_registered_explicitly(spark: SparkSession) -> None:
    """For installations in which Spark cannot find the package."""
    from konvene.pipeline.spark.register import register

    register(spark)
    assert read(spark, "coordinator_record", LOGS / "consumer").count() == 350
