"""Tasks that the Spark data source plans, and what they read, without a Spark session."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.segments import write
from tests.pipeline.sources.test_live import GROUPS, commit, delete_records

from konvene.codec.batches import Record
from konvene.pipeline.sources.decode import reading
from konvene.pipeline.sources.plan import Live, Slice
from konvene.testing import Konvene

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed: pip install 'konvene[spark]'", allow_module_level=True)

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pyspark_konvene_log
from konvene.pipeline.sources.konvene_log import BatchReader, KonveneLog, StreamReader
from konvene.pipeline.sources.types import conversion, spark_schema
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.record import RECORD

LOGS = Path(__file__).parents[2] / "vectors" / "logs" / "consumer"


def reader(table: str = "coordinator_record", **options: str) -> BatchReader:
    given = CaseInsensitiveDict({"path": str(LOGS), "table": table, **options})
    source = KonveneLog(given)
    data_reader = source.reader(source.schema())
    assert isinstance(data_reader, BatchReader)
    return data_reader


def planned(**options: str) -> list[tuple[int, int, int]]:
    """Return partition, first and last offset of each task."""
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
def test_options_select_partitions_and_offsets(
    options: dict[str, str], tasks: list[tuple[int, int, int]]
) -> None:
    """A small partition is one task."""
    assert planned(**options) == tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": "one"}, "partitions are numbers, such as 0,7"),
        ({"offsets": "7"}, "offsets are the first and the last"),
        ({"offset": "7"}, "konvene-log has no option offset; it has path, "),
        ({"table": "rebalances"}, "konvene-log has no table rebalances; it has audit_event, "),
        ({"table": "rebalance", "offsets": "7-"}, "rebalance follows from whole logs"),
        ({"table": "rebalance", "isolationLevel": "read_committed"}, "isolation level of the table record"),
        ({"table": "record", "isolationLevel": "committed"}, "isolationLevel is read_uncommitted or"),
        ({"topics": "orders"}, "logs of orders do not have the table coordinator_record: .* table record"),
        ({"kafka.bootstrap.servers": "localhost:1"}, "give one of them"),
    ],
)
def test_invalid_option_is_rejected_with_a_message(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader(**options)


def source_of(*paths: Path, **options: str) -> KonveneLog:
    return KonveneLog(CaseInsensitiveDict({"paths": json.dumps(list(map(str, paths))), **options}))


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A data directory, named like a partition, with logs of a user's topic and of a coordinator."""
    folder = tmp_path / "kafka-0"
    shutil.copytree(LOGS / "__consumer_offsets-1", folder / "__consumer_offsets-1")
    write(folder, [[Record(0, 7, None, b"a")], [Record(1, 7, b"k", b"b")]], topic="orders")
    return folder


def test_path_of_a_user_topic_has_the_table_record(broker: Path) -> None:
    """Of other paths the table does not depend on what is in them."""
    for path in (broker / "orders-0", next(broker.glob("orders-0/*.log"))):
        assert source_of(path).schema().fieldNames() == RECORD.schema.names
        assert rows_of(source_of(path)) == [b"a", b"b"]
    assert "key_type" in source_of(broker).schema().fieldNames()
    assert "key_type" in source_of(broker, broker / "orders-0").schema().fieldNames()
    assert rows_of(source_of(broker, table="record")) == [b"a", b"b"]
    assert rows_of(source_of(broker, topics="orders")) == [b"a", b"b"]
    assert len(rows_of(source_of(broker / "__consumer_offsets-1", table="record"))) == 167


def rows_of(source: KonveneLog) -> list[bytes]:
    """Return the values of all rows."""
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize(
    ("path", "table", "message"),
    [
        ("orders-0", "offset_commit", "logs of orders do not have the table offset_commit: .* record"),
        ("orders-0", "rebalance", "logs of orders do not have the table rebalance: ask for the table record"),
        ("users", "coordinator_record", "logs of orders do not .* ask for the table record"),
        ("users", "rebalance", "logs of orders do not have the table rebalance"),
        ("__consumer_offsets-1", "log_end", "ask for the table coordinator_record"),
        ("__consumer_offsets-1", "share_snapshot", "ask for the table coordinator_record"),
        ("__consumer_offsets-1", "audit_event", "ask for the table coordinator_record"),
        ("internal", "record", "ask for the table coordinator_record"),
    ],
)
def test_logs_without_the_table_are_rejected(broker: Path, path: str, table: str, message: str) -> None:
    """The message names the table to ask for."""
    (broker / "users").mkdir()
    (broker / "internal").mkdir()
    shutil.copytree(broker / "orders-0", broker / "users" / "orders-0")
    shutil.copytree(broker / "__consumer_offsets-1", broker / "internal" / "__consumer_offsets-1")
    source = source_of(broker / path, table=table)
    with pytest.raises(ValueError, match=message):
        source.reader(source.schema()).partitions()


def test_damaged_batches_of_a_user_topic_are_in_quarantine(broker: Path) -> None:
    (path,) = broker.glob("orders-0/*.log")
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    assert rows_of(source_of(path)) == [b"b"]
    source = source_of(path, table="quarantine")
    reader = source.reader(source.schema())
    bad = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["topic"], row["offset"], row["file_position"]) for row in bad] == [("orders", 0, 0)]


def test_coordinator_without_such_records_has_no_rows(broker: Path) -> None:
    """A cluster without share groups is no error."""
    source = source_of(broker, table="share_snapshot")
    assert source.reader(source.schema()).partitions() == []


def test_streams_read_no_gold_and_nothing_committed_only(broker: Path) -> None:
    for options, message in (
        ({"table": "rebalance"}, "konvene.pipeline.spark.stream.gold"),
        ({"table": "record", "isolationLevel": "read_committed"}, "it is read_uncommitted"),
    ):
        source = source_of(broker, **options)
        with pytest.raises(ValueError, match=message):
            source.streamReader(source.schema())


@pytest.mark.konvene(topics={"orders": 1})
def test_records_and_gold_of_a_live_cluster(konvene: Konvene) -> None:
    konvene.produce("orders", [b"a", b"b"], partition=0)
    servers = {"kafka.bootstrap.servers": konvene.bootstrap}
    assert rows_of(source_of(topics="orders", **servers)) == [b"a", b"b"]
    for options, message in (
        ({"table": "record"}, "name the topics"),
        ({"table": "log_end"}, "name the topics"),
        ({"table": "rebalance", "partitions": "0"}, "for all partitions"),
    ):
        source = source_of(**servers, **options)
        with pytest.raises(ValueError, match=message):
            source.reader(source.schema()).partitions()
    commit(konvene, GROUPS, 7)
    source = source_of(table="lag", **servers)
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    groups = {row["group_id"] for batch in reader.read(part) for row in batch.to_pylist()}
    assert groups == set(GROUPS)


def test_empty_task_reads_nothing() -> None:
    """Spark plans an empty task if the source plans none."""
    assert list(reader().read(InputPartition(None))) == []


def test_spark_finds_the_source_by_its_package() -> None:
    """The wheel contains that package."""
    assert pyspark_konvene_log.DefaultSource is KonveneLog
    assert KonveneLog.name() == "konvene-log"
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert "src/pyspark_konvene_log" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_paths_may_be_a_list_of_uris() -> None:
    paths = f'["file:{LOGS}/__consumer_offsets-0", "file://{LOGS}/__consumer_offsets-1"]'
    options = CaseInsensitiveDict({"paths": paths})
    source = KonveneLog(options)
    assert len(source.reader(source.schema()).partitions()) == 2


def test_batches_are_cast_to_spark_types() -> None:
    """Columns are matched by name, for any Arrow type of the decoder."""
    wanted = spark_schema(pa.schema([("a", pa.string()), ("b", pa.binary())]))
    data_reader = pa.record_batch(
        {"c": pa.array([1]), "b": pa.array([b"x"], pa.binary_view()), "a": pa.array(["y"], pa.large_string())}
    )
    got = conversion(wanted)(data_reader)
    assert got.schema == pa.schema([("a", pa.string()), ("b", pa.binary())])
    assert got.to_pylist() == [{"a": "y", "b": b"x"}]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_has_a_spark_schema(table: str) -> None:
    schema = TABLES[table].schema
    data_reader = spark_schema(schema)
    assert data_reader.fieldNames() == schema.names
    assert [field.nullable for field in data_reader] == [field.nullable for field in schema]


@pytest.mark.konvene(topics={"orders": 1})
def test_stream_begins_at_the_log_start_offset(konvene: Konvene) -> None:
    """Records that retention deleted from a live log are not requested."""
    konvene.produce("orders", [b"a", b"b", b"c", b"d"], partition=0)
    delete_records(konvene, "orders", 3)
    how = replace(reading("coordinator_record"), topics=("orders",))
    source = Live(konvene.bootstrap, topics=how.topics)
    stream = StreamReader(how, how.wanted, source, spark_schema(how.schema), {})
    begun = stream.initialOffset()
    parts = stream.partitions(begun, stream.latestOffset(begun, ReadAllAvailable()))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in rows] == [(3, b"d")]
