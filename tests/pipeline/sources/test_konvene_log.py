"""What the data source plans, without a session of Spark's: how many tasks, of what, and what they read."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.sources.test_live import delete_records

from konvene.pipeline.sources.decode import reading
from konvene.pipeline.sources.plan import Live, Slice
from konvene.testing import Konvene

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed: pip install 'konvene[spark]'", allow_module_level=True)

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pyspark_konvene
from konvene.pipeline.sources.konvene_log import BatchReader, KonveneLog, StreamReader
from konvene.pipeline.sources.types import conversion, spark_schema
from konvene.pipeline.tables import TABLES

LOGS = Path(__file__).parents[2] / "vectors" / "logs" / "consumer"


def reader(table: str = "coordinator_record", **options: str) -> BatchReader:
    given = CaseInsensitiveDict({"path": str(LOGS), "table": table, **options})
    source = KonveneLog(given)
    made = source.reader(source.schema())
    assert isinstance(made, BatchReader)
    return made


def planned(**options: str) -> list[tuple[int, int, int]]:
    """Partition and offsets of each task."""
    parts: list[Slice] = [part.value for part in reader(**options).partitions()]
    return [(part.of.partition, part.first, part.last) for part in parts]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [(0, 0, 182), (1, 0, 166)]),
        ({"partitions": "1"}, [(1, 0, 166)]),
        ({"partitions": "0, 1, 7"}, [(0, 0, 182), (1, 0, 166)]),
        ({"partitions": "7"}, []),
        ({"partitions": "1", "offsets": "30-30"}, [(1, 30, 30)]),
        ({"partitions": "1", "offsets": "100 - 120"}, [(1, 100, 120)]),
        ({"offsets": "170-"}, [(0, 170, 182)]),
        ({"offsets": "1000-"}, []),
        ({"table": "offset_commit", "partitions": "1"}, [(1, 0, 166)]),
    ],
)
def test_options_choose_what_is_read(options: dict[str, str], tasks: list[tuple[int, int, int]]) -> None:
    """A log's partition is a task where it is small."""
    assert planned(**options) == tasks


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partitions": "one"}, "partitions are numbers, such as 0,7"),
        ({"offsets": "7"}, "offsets are the first and the last"),
        ({"offset": "7"}, "konvene-log has no option offset; it has path, "),
        ({"table": "rebalance"}, "konvene-log has no table rebalance; it has audit_event, "),
        ({"kafka.bootstrap.servers": "localhost:1"}, "give one of them"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        reader(**options)


def test_a_task_of_nothing_reads_nothing() -> None:
    """Spark plans one where it was given none."""
    assert list(reader().read(InputPartition(None))) == []


def test_spark_finds_it_by_the_name_of_its_package() -> None:
    """And the wheel has that package."""
    assert pyspark_konvene.DefaultSource is KonveneLog
    assert KonveneLog.name() == "konvene-log"
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert "src/pyspark_konvene" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_paths_may_be_uris_and_many() -> None:
    paths = f'["file:{LOGS}/__consumer_offsets-0", "file://{LOGS}/__consumer_offsets-1"]'
    options = CaseInsensitiveDict({"paths": paths})
    source = KonveneLog(options)
    assert len(source.reader(source.schema()).partitions()) == 2


def test_batches_are_brought_to_the_types_of_spark() -> None:
    """By name, whatever a decoder made of them."""
    wanted = spark_schema(pa.schema([("a", pa.string()), ("b", pa.binary())]))
    made = pa.record_batch(
        {"c": pa.array([1]), "b": pa.array([b"x"], pa.binary_view()), "a": pa.array(["y"], pa.large_string())}
    )
    got = conversion(wanted)(made)
    assert got.schema == pa.schema([("a", pa.string()), ("b", pa.binary())])
    assert got.to_pylist() == [{"a": "y", "b": b"x"}]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_has_a_schema_of_sparks(table: str) -> None:
    schema = TABLES[table].schema
    made = spark_schema(schema)
    assert made.fieldNames() == schema.names
    assert [field.nullable for field in made] == [field.nullable for field in schema]


@pytest.mark.konvene(topics={"orders": 1})
def test_a_stream_of_a_log_whose_beginning_is_gone_begins_with_what_is_left(konvene: Konvene) -> None:
    """Retention took the first records of a live log, as it does of the audit: they are not asked for."""
    konvene.produce("orders", [b"a", b"b", b"c", b"d"], partition=0)
    delete_records(konvene, "orders", 3)
    how = replace(reading("coordinator_record"), topics=("orders",))
    source = Live(konvene.bootstrap, topics=how.topics)
    stream = StreamReader(how, how.wanted, source, spark_schema(how.schema), {})
    begun = stream.initialOffset()
    parts = stream.partitions(begun, stream.latestOffset(begun, ReadAllAvailable()))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(3, b"d")]
