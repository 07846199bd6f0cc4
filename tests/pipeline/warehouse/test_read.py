"""Reading tables: rows in log order, selected columns and rows only, and the validity of each row."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.pipeline.segments import log, write

from konvene.pipeline.engine import Local
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """Return a warehouse of three ingests; the last one fills gaps of the first two, so files overlap."""
    batches = log(1, 120)
    chance = random.Random(1)
    thin = [[r for r in batch if chance.random() < 0.7] for batch in batches]
    warehouse = Warehouse(tmp_path / "w")
    for name, some, cuts in (("a", thin[:60], [20]), ("b", thin, [60]), ("c", batches, [30])):
        write(tmp_path / name, some, cuts=cuts, whole=batches[: len(some)])
        write(tmp_path / name, log(2, 10), partition=1)
        ingest(warehouse, [tmp_path / name], Local())
    return warehouse


def test_rows_are_ordered_by_log_and_offset(warehouse: Warehouse) -> None:
    """Rows are merged from files with overlapping offsets."""
    files = warehouse.files("coordinator_record", partition=0, family="commits")
    assert any(a.last_offset >= b.first_offset for a, b in itertools.pairwise(files))
    rows = read.table(warehouse, "coordinator_record", ["partition", "offset"]).to_pylist()
    places = [(r["partition"], r["offset"]) for r in rows]
    assert places == sorted(set(places))
    assert len(places) == sum(len(b) for b in log(1, 120)) + sum(len(b) for b in log(2, 10))


def test_only_selected_columns_are_read(warehouse: Warehouse) -> None:
    """They keep the requested order; columns needed only for sorting are left out."""
    for columns in (["group_id", "key_type"], ["offset"], ["value", "offset"]):
        rows = read.table(warehouse, "coordinator_record", columns)
        assert rows.column_names == columns
        whole = read.table(warehouse, "coordinator_record")
        assert rows.equals(whole.select(columns))


def test_only_selected_rows_are_read(warehouse: Warehouse) -> None:
    wanted = (ds.field("group_id") == "g-3") & (ds.field("offset") >= 20)
    rows = read.table(warehouse, "coordinator_record", ["offset", "group_id"], wanted).to_pylist()
    whole = read.table(warehouse, "coordinator_record", ["offset", "group_id"]).to_pylist()
    assert rows == [r for r in whole if r["group_id"] == "g-3" and r["offset"] >= 20]
    assert rows
    for family in ("commits", "groups"):
        (count,) = {
            sum(b.num_rows for b in read.batches(warehouse, "coordinator_record", family=family, **of))
            for of in ({}, {"topic": "__consumer_offsets"}, {"cluster": ""})
        }
        assert 0 < count < len(whole)
    assert list(read.batches(warehouse, "coordinator_record", partition=7)) == []


def test_an_empty_table_has_its_schema(tmp_path: Path) -> None:
    for name, table in TABLES.items():
        assert read.table(Warehouse(tmp_path), name).equals(table.schema.empty_table())
    assert read.table(Warehouse(tmp_path), "share_snapshot").num_rows == 0
    with pytest.raises(KeyError):
        read.table(Warehouse(tmp_path), "no_such_table")


def test_runs_are_a_table_too(warehouse: Warehouse) -> None:
    assert read.table(warehouse, "pipeline_run", ["run_id"]).column(0).to_pylist() == [
        "ingest-1", "ingest-2", "ingest-3",
    ]  # fmt: skip
    rows = read.table(warehouse, "pipeline_run", None, ds.field("run_id") == "ingest-2")
    assert rows.num_rows == 1


def test_batch_is_at_most_one_row_group(tmp_path: Path, warehouse: Warehouse) -> None:
    """Long rows make small row groups, of which one is read at a time."""
    (file,) = warehouse.files("group_metadata", partition=1)
    rows = pq.read_table(warehouse.where(file))
    path = tmp_path / "few.parquet"
    pq.write_table(rows, path, row_group_size=2)
    sizes = [b.num_rows for b in read._of_file(str(path), None, None)]
    assert max(sizes) == 2 and sum(sizes) == rows.num_rows


@pytest.mark.parametrize("table", ["offset_commit", "group_metadata"])
def test_row_is_valid_until_the_next_row_of_its_key(warehouse: Warehouse, table: str) -> None:
    """Matches a plain scan of the log from its beginning."""
    key = read.key_of(table)
    rows = read.table(warehouse, table).to_pylist()
    until: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    last: dict[tuple[object, ...], tuple[int, int]] = {}
    for row in rows:
        place = (row["log_partition"], row["offset"])
        who = (row["log_partition"], *(row[name] for name in key))
        if who in last:
            until[last[who]] = (row["offset"], row["timestamp_ms"])
        until[place] = (None, None)
        last[who] = place
    found = pa.Table.from_batches(read.validity(warehouse, table)).to_pylist()
    assert {
        (r["log_partition"], r["offset"]): (r["valid_to_offset"], r["valid_to_ms"]) for r in found
    } == until
    assert len(found) == len(rows)
    assert any(r["valid_to_offset"] is None for r in found)
    assert any(r["valid_to_offset"] is not None for r in found)


def test_validity_has_selected_columns_only(warehouse: Warehouse) -> None:
    for batch in read.validity(warehouse, "offset_commit", ["committed_offset"], partition=1):
        assert batch.schema.names == ["committed_offset", "valid_to_offset", "valid_to_ms"]
    assert read.key_of("offset_commit") == ["group", "topic", "partition"]


def test_streams_are_merged_by_offset(tmp_path: Path) -> None:
    """Batches have any size; some batches and streams are empty."""
    chance = random.Random(3)
    for _ in range(50):
        offsets = list(range(chance.randint(0, 60)))
        of = [chance.randrange(3) for _ in offsets]
        streams = []
        for n in range(3):
            mine = [o for o in offsets if of[o] == n]
            cuts = sorted(chance.randrange(len(mine) + 1) for _ in range(3))
            parts = [mine[a:b] for a, b in zip([0, *cuts], [*cuts, len(mine)], strict=True)]
            streams.append(iter([pa.record_batch({"offset": pa.array(p, pa.int64())}) for p in parts]))
        merged = [o for batch in read.merged(streams) for o in batch.column(0).to_pylist()]
        assert merged == offsets
