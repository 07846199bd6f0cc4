"""A step of the warehouse is committed completely or not at all, and readers see no partial step."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.segments import all_files, sums_of

from konvene.pipeline.sources.files import Partition
from konvene.pipeline.warehouse.parquet import Sink
from konvene.pipeline.warehouse.warehouse import (
    FOLD,
    Conflict,
    DamagedWarehouse,
    DataFile,
    Warehouse,
    folder_of,
)

SCHEMA = pa.schema([pa.field("offset", pa.int64()), pa.field("text", pa.string())])
OF = Partition("", "__consumer_offsets", 3)


def write_file(warehouse: Warehouse, first: int, rows: int = 3, of: Partition = OF) -> DataFile:
    folder = folder_of("bronze", "coordinator_record", of)
    sink = Sink(warehouse.path / folder, SCHEMA)
    offsets = range(first, first + rows)
    sink.write(pa.record_batch([list(offsets), [str(o) for o in offsets]], schema=SCHEMA))
    written = sink.close(lambda checksum: f"{first}-{first + rows - 1}-v1-{checksum}.parquet")
    assert written is not None
    return DataFile.made("coordinator_record", folder, of, first, first + rows - 1, written)


def test_file_is_visible_once_a_manifest_lists_it(tmp_path: Path) -> None:
    warehouse, reader = Warehouse(tmp_path), Warehouse(tmp_path)
    with warehouse.writing():
        file = write_file(warehouse, 0)
        assert (warehouse.files("coordinator_record"), reader.files("coordinator_record")) == ([], [])
        assert warehouse.commit("ingest", [file], ledger={"a": 1}) == 1
    assert reader.files("coordinator_record") == []
    assert reader.refresh().files == {file.path: file}
    assert reader.snapshot.ledger == {"a": 1}
    assert sums_of(reader) == {file.path: file.sha256}
    assert file.path.startswith("bronze/coordinator_record/__consumer_offsets-3/0-2-v1-")


def test_files_are_found_by_table_partition_and_cluster(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    other, cluster = Partition("", "__share_group_state", 3), Partition("c/1", OF.topic, 3)
    files = [write_file(warehouse, 3), write_file(warehouse, 0), write_file(warehouse, 0, of=other)]
    files.append(write_file(warehouse, 0, of=cluster))
    warehouse.commit("ingest", files)
    assert warehouse.files("coordinator_record") == [files[1], files[0], files[2], files[3]]
    assert warehouse.files("coordinator_record", OF.topic, 3, cluster="") == [files[1], files[0]]
    assert warehouse.files("coordinator_record", cluster="c/1") == [files[3]]
    assert "/c%2F1/" in files[3].path
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
    with second.writing():
        pass
    assert all_files(second) == set(second.snapshot.files)


def test_unlisted_files_are_removed_by_the_next_step(tmp_path: Path) -> None:
    """Removes files of steps that failed and temporary files, but keeps files that a reader may still use."""
    warehouse = Warehouse(tmp_path)
    old, orphan = write_file(warehouse, 0), write_file(warehouse, 3)
    warehouse.commit("ingest", [old])
    (tmp_path / Path(old.path).parent / ".draft.part").write_bytes(b"x")
    (tmp_path / "_manifest" / ".draft.part").write_bytes(b"x")
    new = write_file(warehouse, 0, 5)
    with warehouse.writing():
        assert all_files(warehouse) == {old.path}
        assert not list((tmp_path / "_manifest").glob("*.part"))
        new = write_file(warehouse, 0, 5)
        warehouse.commit("build", [new], [old])
    assert orphan.path not in all_files(warehouse)
    with warehouse.writing():
        assert all_files(warehouse) == {old.path, new.path}
        warehouse.commit("build", [write_file(warehouse, 9)])
    with warehouse.writing():
        assert old.path not in all_files(warehouse)


def test_reader_keeps_its_snapshot(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    old = write_file(warehouse, 0)
    with warehouse.writing():
        old = write_file(warehouse, 0)
        warehouse.commit("ingest", [old])
    reader = Warehouse(tmp_path)
    with warehouse.writing():
        warehouse.commit("build", [write_file(warehouse, 0, 5)], [old])
    assert list(reader.snapshot.files) == [old.path]
    assert pq.read_table(reader.where(old)).num_rows == 3


def test_folded_manifests_give_the_same_snapshot(tmp_path: Path) -> None:
    """After many steps few manifests are left, and the snapshot is complete."""
    warehouse, before = Warehouse(tmp_path), None
    for n in range(3 * FOLD + 5):
        with warehouse.writing():
            file = write_file(warehouse, n)
            removed = [before] if before is not None and n % 3 else []
            warehouse.commit(
                "ingest", [file], removed, ledger={f"k{n % 4}": n}, run={"run_id": f"ingest-{n}"}
            )
            before = file
        assert Warehouse(tmp_path).snapshot == warehouse.snapshot
    assert len(list((tmp_path / "_manifest").glob("*.json"))) <= 2 * FOLD + 10
    assert [run["run_id"] for run in warehouse.snapshot.runs] == [f"ingest-{n}" for n in range(3 * FOLD + 5)]


def test_missing_or_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for n in range(3):
        warehouse.commit("ingest", [write_file(warehouse, n)])
    second = tmp_path / "_manifest" / f"{2:020}.json"
    text = second.read_text()
    second.unlink()
    with pytest.raises(DamagedWarehouse, match="manifest 2 is missing"):
        Warehouse(tmp_path)
    second.write_text(text[:-5])
    with pytest.raises(DamagedWarehouse, match=f"{2:020}.json"):
        Warehouse(tmp_path)
    second.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(DamagedWarehouse, match="format 99 is not known"):
        Warehouse(tmp_path)


def test_missing_file_is_not_committed(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    file = write_file(warehouse, 0)
    Path(warehouse.where(file)).unlink()
    with pytest.raises(DamagedWarehouse, match="should have"):
        warehouse.commit("ingest", [file])
    assert Warehouse(tmp_path).snapshot.number == 0


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
