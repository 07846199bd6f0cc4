"""What the data source plans, without a session of Spark's: how many tasks, of what, and what they read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa
import pytest

from konvene.pipeline.sources.plan import Slice

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed: pip install 'konvene[spark]'", allow_module_level=True)

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from konvene.pipeline.sources.konvene_log import BatchReader, KonveneLog
from konvene.pipeline.sources.types import conversion, spark_schema
from konvene.pipeline.tables import TABLES

LOGS = Path(__file__).parents[2] / "vectors" / "logs" / "consumer"


def reader(*filters: Filter, table: str = "coordinator_record", **options: str) -> BatchReader:
    given = CaseInsensitiveDict({"path": str(LOGS), "table": table, **options})
    source = KonveneLog(given)
    made = source.reader(source.schema())
    assert isinstance(made, BatchReader)
    assert list(made.pushFilters(list(filters))) == list(filters)
    return made


def planned(
    *filters: Filter, table: str = "coordinator_record", **options: str
) -> list[tuple[int, int, int]]:
    """Partition and offsets of each task."""
    parts: list[Slice] = [part.value for part in reader(*filters, table=table, **options).partitions()]
    return [(part.of.partition, part.first, part.last) for part in parts]


def test_each_partition_is_a_task_where_it_is_small() -> None:
    assert planned() == [(0, 0, 182), (1, 0, 166)]


@pytest.mark.parametrize("table", ["coordinator_record", "consumer_group_current_member_assignment"])
@pytest.mark.parametrize(
    ("by", "value", "tasks"),
    [
        (EqualTo, 30, [(30, 30)]),
        (GreaterThan, 100, [(101, 166)]),
        (GreaterThanOrEqual, 100, [(100, 166)]),
        (LessThan, 100, [(0, 99)]),
        (LessThanOrEqual, 100, [(0, 100)]),
        (GreaterThan, 1000, []),
    ],
)
def test_filters_on_offsets_choose_what_is_read(
    table: str, by: type[EqualTo], value: int, tasks: list[tuple[int, int]]
) -> None:
    partition = "partition" if table == "coordinator_record" else "log_partition"
    made = planned(EqualTo((partition,), 1), by(("offset",), value), table=table)
    assert made == [(1, *task) for task in tasks]


@pytest.mark.parametrize(
    ("by", "partitions"),
    [
        ([In(("partition",), (1, 2, 3))], [1]),
        ([In(("partition",), (0, 1)), EqualTo(("partition",), 0)], [0]),
        ([EqualTo(("topic",), "__consumer_offsets")], [0, 1]),
        ([EqualTo(("topic",), "orders")], []),
        ([EqualTo(("cluster",), "east")], [0, 1]),
        ([EqualTo(("cluster",), "west")], []),
        ([GreaterThan(("partition",), 0)], [0, 1]),
        ([EqualTo(("key_type",), 3)], [0, 1]),
        ([IsNotNull(("offset",))], [0, 1]),
    ],
)
def test_filters_on_where_a_record_is_choose_too(by: list[Filter], partitions: list[int]) -> None:
    """What says nothing of that is left to Spark."""
    assert [task[0] for task in planned(*by, cluster="east")] == partitions


def test_a_partition_of_what_is_typed_is_not_the_logs() -> None:
    """`offset_commit` has a column of that name, which is of the topic whose offset is committed."""
    assert len(planned(EqualTo(("partition",), 77), table="offset_commit")) == 2


def test_a_task_of_nothing_reads_nothing() -> None:
    """Spark plans one where it was given none."""
    assert list(reader().read(InputPartition(None))) == []


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
