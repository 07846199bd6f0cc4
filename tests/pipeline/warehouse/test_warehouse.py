"""A step of the warehouse is committed completely or not at all, and readers see no partial step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.segments import all_files, sums_of

from konvene.pipeline.sources.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.delta import FOLD
from konvene.pipeline.warehouse.memory import InMemory
from konvene.pipeline.warehouse.parquet import Sink, Written
from konvene.pipeline.warehouse.warehouse import (
    Conflict,
    DamagedWarehouse,
    DataFile,
    OldFormat,
    Warehouse,
    folder_of,
)

SCHEMA = pa.schema([pa.field("offset", pa.int64()), pa.field("text", pa.string())])
OF = Partition("", "__consumer_offsets", 3)


def write_file(warehouse: Warehouse, first: int, rows: int = 3, of: Partition = OF) -> DataFile:
    folder = folder_of("coordinator_record", of)
    sink = Sink(warehouse.path / folder, SCHEMA)
    offsets = range(first, first + rows)
    sink.write(pa.record_batch([list(offsets), [str(o) for o in offsets]], schema=SCHEMA))
    written = sink.close(lambda checksum: f"{first}-{first + rows - 1}-v1-{checksum}.parquet")
    assert written is not None
    return DataFile.made("coordinator_record", folder, of, first, first + rows - 1, written)


def run_of(n: int) -> dict[str, object]:
    """Return a row of `pipeline_run`."""
    row = dict.fromkeys(TABLES["pipeline_run"].schema.names, n)
    return row | {"run_id": f"ingest-{n}", "step": "ingest", "engine": "local", "version": "1"}


def test_file_is_visible_once_its_step_is_committed(tmp_path: Path) -> None:
    warehouse, reader = Warehouse(tmp_path), Warehouse(tmp_path)
    with warehouse.writing():
        file = write_file(warehouse, 0)
        assert (warehouse.files("coordinator_record"), reader.files("coordinator_record")) == ([], [])
        assert warehouse.commit("ingest", [file], ledger={"a": 1}) == 1
    assert reader.files("coordinator_record") == []
    assert reader.refresh().files == {file.path: file}
    assert reader.snapshot.ledger == {"a": 1}
    assert sums_of(reader) == {file.path: file.sha256}
    assert file.path.startswith("coordinator_record/@/__consumer_offsets-3/0-2-v1-")


def test_files_are_found_by_table_partition_and_cluster(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    other, cluster = Partition("", "__share_group_state", 3), Partition("c/1", OF.topic, 3)
    files = [write_file(warehouse, 3), write_file(warehouse, 0), write_file(warehouse, 0, of=other)]
    files.append(write_file(warehouse, 0, of=cluster))
    warehouse.commit("ingest", files)
    assert warehouse.files("coordinator_record") == [files[1], files[0], files[2], files[3]]
    assert warehouse.files("coordinator_record", OF.topic, 3, cluster="") == [files[1], files[0]]
    assert warehouse.files("coordinator_record", cluster="c/1") == [files[3]]
    assert "/@c@2F1/" in files[3].path
    assert warehouse.files("rebalance") == []
    assert warehouse.tables() == ["coordinator_record"]


def test_the_second_of_two_writers_fails_and_changes_nothing(tmp_path: Path) -> None:
    """It starts while the first is writing, or commits on an outdated snapshot."""
    first, second = Warehouse(tmp_path), Warehouse(tmp_path)
    with first.writing():
        with pytest.raises(Conflict, match="another process is writing"), second.writing():
            pass
        first.commit("ingest", [write_file(first, 0)])
    late = write_file(second, 3)
    with pytest.raises(Conflict, match="another step came first, as number 1"):
        second.commit("ingest", [late])
    assert second.refresh().number == 1
    assert [f.first_offset for f in second.files("coordinator_record")] == [0]


def test_reader_keeps_its_snapshot(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    old = write_file(warehouse, 0)
    warehouse.commit("ingest", [old])
    reader = Warehouse(tmp_path)
    with warehouse.writing():
        warehouse.commit("build", [write_file(warehouse, 0, 5)], [old])
    with warehouse.writing():
        warehouse.commit("build", [write_file(warehouse, 9)])
    assert list(reader.snapshot.files) == [old.path]
    assert pq.read_table(reader.where(old)).num_rows == 3


def test_files_that_are_there_already_are_not_added_again(tmp_path: Path) -> None:
    """A step that is repeated writes the same files; a removed file may come back."""
    warehouse = Warehouse(tmp_path)
    file, other = write_file(warehouse, 0), write_file(warehouse, 3)
    warehouse.commit("ingest", [file])
    warehouse.commit("ingest", [file], [file])
    warehouse.commit("build", [other], [file])
    assert list(Warehouse(tmp_path).snapshot.files) == [other.path]
    warehouse.commit("build", [file], [other])
    assert list(Warehouse(tmp_path).snapshot.files) == [file.path]


def test_many_steps_give_the_same_snapshot_to_old_and_new_readers(tmp_path: Path) -> None:
    """One reader follows all steps, one looks now and then, and others open the warehouse anew."""
    warehouse, follower, sleeper = (Warehouse(tmp_path) for _ in range(3))
    before = None
    for n in range(2 * FOLD + 5):
        with warehouse.writing():
            file = write_file(warehouse, n)
            removed = [before] if before is not None and n % 3 else []
            warehouse.commit("ingest", [file], removed, ledger={f"k{n % 4}": n}, run=run_of(n))
            before = file
        assert follower.refresh() == warehouse.snapshot
        if n % 7 == 0:
            assert sleeper.refresh() == Warehouse(tmp_path).snapshot == warehouse.snapshot
    assert sleeper.refresh() == warehouse.snapshot
    assert [row["run_id"] for row in read.table(warehouse, "pipeline_run").to_pylist()] == [
        f"ingest-{n}" for n in range(2 * FOLD + 5)
    ]


def test_missing_file_is_not_committed(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    file = write_file(warehouse, 0)
    Path(warehouse.where(file)).unlink()
    with pytest.raises(DamagedWarehouse, match="should have"):
        warehouse.commit("ingest", [file])
    assert Warehouse(tmp_path).snapshot.number == 0


def test_temporary_warehouse_keeps_its_state_in_memory(tmp_path: Path) -> None:
    """It has the same snapshots as Delta tables, writes only data files, and deletes removed ones later."""
    kept, temporary = Warehouse(tmp_path / "a"), Warehouse(tmp_path / "b", InMemory(tmp_path / "b"))
    for warehouse in (kept, temporary):
        with warehouse.writing():
            first = write_file(warehouse, 0)
            warehouse.commit("ingest", [first], ledger={"a": 1})
            warehouse.commit("build", [write_file(warehouse, 3)], [first], ledger={"b": [2]})
    assert kept.snapshot == temporary.snapshot
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"coordinator_record"}
    assert first.path in all_files(temporary)
    temporary.commit("build", [write_file(temporary, 6)])
    assert first.path not in all_files(temporary)
    with temporary.writing(), pytest.raises(Conflict, match="a step is running"), temporary.writing():
        pass


def test_tables_of_an_older_konvene_are_refused(tmp_path: Path) -> None:
    (tmp_path / "_manifest").mkdir()
    with pytest.raises(OldFormat, match="format of an older konvene"):
        Warehouse(tmp_path)


@given(
    st.text(max_size=20), st.sampled_from(["__consumer_offsets", "a.b-7", ""]), st.integers(0, 999),
    st.sampled_from(["", "groups", "3of16"]),
)  # fmt: skip
def test_path_describes_its_file(cluster: str, topic: str, partition: int, family: str) -> None:
    """The entry that is parsed from a path equals the entry that was made for the file."""
    of = Partition(cluster, topic, partition if topic else -1)
    name = f"5-7-v1{'-' if family else ''}{family}-0123456789ab.parquet"
    written = Written(name, 3, 100, "0123456789ab" + 52 * "0")
    file = DataFile.made("lag", folder_of("lag", of), of, 5, 7, written, family)
    assert DataFile.parsed(file.path, 3, 100) == file
    assert "%" not in file.path


@pytest.mark.parametrize("name", ["part-00000-1.c000.snappy.parquet", "x/1-2-v1-0123456789ab.parquet"])
def test_paths_of_other_programs_are_recognized(name: str) -> None:
    with pytest.raises(ValueError, match="not named as konvene names its files"):
        DataFile.parsed(f"lag/{name}", 1, 1)


# files of workers ---------------------------------------------------------------------------------


def test_file_bytes_do_not_depend_on_batch_sizes(tmp_path: Path) -> None:
    """Equal rows in batches of any size make an equal file with an equal name."""
    offsets = list(range(1000))
    whole = pa.record_batch([offsets, [str(o) * 5 for o in offsets]], schema=SCHEMA)
    made = []
    for n, step in enumerate((1000, 1, 7, 300)):
        sink = Sink(tmp_path / str(n), SCHEMA, rows=128)
        for at in range(0, 1000, step):
            sink.write(whole.slice(at, step))
        made.append(sink.close(lambda checksum: f"{checksum}.parquet"))
    assert made[0] is not None and len(set(made)) == 1
    file = pq.ParquetFile(tmp_path / "0" / made[0].name)
    assert [file.metadata.row_group(i).num_rows for i in range(8)] == [128] * 7 + [104]
    assert file.read().equals(pa.Table.from_batches([whole]))


def test_long_rows_make_smaller_row_groups(tmp_path: Path) -> None:
    sink = Sink(tmp_path, SCHEMA, rows=1000, size=10_000)
    for n in range(100):
        sink.write(pa.record_batch([[n], ["x" * 1000]], schema=SCHEMA))
    written = sink.close(lambda checksum: "f.parquet")
    assert written is not None and written.rows == 100
    assert pq.ParquetFile(tmp_path / "f.parquet").num_row_groups == 10


def test_empty_and_abandoned_files_leave_nothing(tmp_path: Path) -> None:
    assert Sink(tmp_path / "none", SCHEMA).close(str) is None
    sink = Sink(tmp_path / "given-up", SCHEMA, rows=1)
    sink.write(pa.record_batch([[1], ["x"]], schema=SCHEMA))
    assert len(list((tmp_path / "given-up").iterdir())) == 1
    sink.abandon()
    sink.abandon()
    assert not (tmp_path / "none").exists()
    assert list((tmp_path / "given-up").iterdir()) == []
