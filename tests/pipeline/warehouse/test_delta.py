"""Delta tables of a warehouse: steps interrupted between their commits, races, and other readers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.docs.pages import blocks
from tests.pipeline import streaming
from tests.pipeline.segments import log, write
from tests.pipeline.warehouse.test_warehouse import run_of, write_file

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.delta_log import Action, DeltaLog
from konvene.pipeline.warehouse.warehouse import Conflict, DamagedWarehouse, Warehouse


class Killed(Exception):
    """The writer dies."""


def commit_and_die(warehouse: Warehouse, commits: int, *given: Any, **more: Any) -> None:
    """Commit a step, and die before the commit to a table after so many others."""
    with pytest.MonkeyPatch.context() as patch:
        left = [commits]
        commit = DeltaLog.commit

        def counted(self: DeltaLog, *given: Any, **more: Any) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            commit(self, *given, **more)

        patch.setattr(DeltaLog, "commit", counted)
        with pytest.raises(Killed):
            warehouse.commit(*given, **more)


def versions(path: Path, tables: tuple[str, ...]) -> list[int | None]:
    """Return the steps of these tables."""
    made = (path / name for name in tables)
    return [DeltaTable(str(p)).transaction_version("konvene") if p.exists() else None for p in made]


TABLES = ("_steps", "coordinator_record", "pipeline_run")


@pytest.mark.parametrize(("commits", "expected"), [(0, [1, 1, 1]), (1, [2, 1, 1]), (2, [2, 2, 1])])
def test_step_interrupted_between_its_commits_is_completed_by_the_next_writer(
    tmp_path: Path, commits: int, expected: list[int]
) -> None:
    """Readers see it once `_steps` has it, and not before; nothing is lost or doubled."""
    warehouse, follower = Warehouse(tmp_path), Warehouse(tmp_path)
    old, new = write_file(warehouse, 0), write_file(warehouse, 3)
    warehouse.commit("ingest", [old], ledger={"a": 1}, run=run_of(1))
    follower.refresh()
    commit_and_die(warehouse, commits, "build", [new], [old], ledger={"a": 2}, run=run_of(2))
    assert versions(tmp_path, TABLES) == expected
    is_committed = commits > 0
    for reader in (follower, Warehouse(tmp_path)):
        assert reader.refresh().number == 1 + is_committed
        assert reader.snapshot.ledger == {"a": 1 + is_committed}
        assert reader.files("coordinator_record") == [new if is_committed else old]
        assert len(read.table(reader, "pipeline_run")) == 1 + is_committed
    with Warehouse(tmp_path).writing() as snapshot:
        assert snapshot == follower.snapshot
    assert versions(tmp_path, TABLES) == [1 + is_committed] * 3
    assert follower.refresh() == Warehouse(tmp_path).snapshot
    assert follower.commit("ingest", [write_file(follower, 9)]) == 2 + is_committed


def test_two_writers_without_a_common_lock_complete_one_step_together(tmp_path: Path) -> None:
    """The second writer, on another machine, completes the step of the first, which then goes on."""
    first, second = Warehouse(tmp_path), Warehouse(tmp_path)
    first.commit("ingest", [write_file(first, 0)], run=run_of(1))
    second.refresh()
    file = write_file(first, 3)
    commit_and_die(first, 1, "ingest", [file], run=run_of(2))
    second.refresh()
    second.commit("ingest", [write_file(second, 6)], run=run_of(3))
    first.store._complete()  # type: ignore[attr-defined]
    assert first.refresh() == second.snapshot == Warehouse(tmp_path).snapshot
    assert [f.first_offset for f in first.files("coordinator_record")] == [0, 3, 6]
    assert DeltaTable(str(tmp_path / "coordinator_record")).version() == 3


def test_reader_that_meets_a_newer_table_reads_the_steps_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole step is committed after the reader has read `_steps`, and another one after the first table."""
    warehouse = Warehouse(tmp_path)
    warehouse.commit("ingest", [write_file(warehouse, 0)], run=run_of(1))
    offsets = iter((3, 6))
    refresh = DeltaLog.refresh

    def interleaved(self: DeltaLog) -> None:
        refresh(self)
        first = next(offsets, None) if self.home.name != "pipeline_run" else None
        if first is not None:
            monkeypatch.setattr(DeltaLog, "refresh", refresh)
            warehouse.commit("ingest", [write_file(warehouse, first)], run=run_of(first))
            monkeypatch.setattr(DeltaLog, "refresh", interleaved)

    monkeypatch.setattr(DeltaLog, "refresh", interleaved)
    reader = Warehouse(tmp_path)
    assert reader.snapshot == warehouse.snapshot and reader.snapshot.number == 3


def test_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Four threads commit without the lock until each has ten steps; losers write their file again."""
    Warehouse(tmp_path).commit("ingest", [], run=run_of(0))

    def work(number: int) -> None:
        warehouse = Warehouse(tmp_path)
        for at in range(10):
            file = write_file(warehouse, 1000 * number + at, rows=1)
            while True:
                try:
                    warehouse.commit("ingest", [file], run=run_of(number))
                    break
                except Conflict:
                    warehouse.refresh()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    warehouse = Warehouse(tmp_path)
    assert warehouse.snapshot.number == 41
    offsets = [file.first_offset for file in warehouse.files("coordinator_record")]
    assert offsets == [1000 * number + at for number in range(4) for at in range(10)]
    assert versions(tmp_path, TABLES) == [41, 41, 41]


def test_writer_waits_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Warehouse(tmp_path), Warehouse(tmp_path, patience_s=600)
    stack = first.writing()
    stack.__enter__()

    def released(_: float) -> None:
        first.commit("ingest", [write_file(first, 0)])
        stack.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", released)
    with second.writing() as snapshot:
        assert snapshot.number == 1


# after a power failure ----------------------------------------------------------------------------


def newest_entry(path: Path, table: str) -> Path:
    return max((path / table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("table", ["_steps", "coordinator_record"])
@pytest.mark.parametrize("data", [b"", b'{"commitInfo":{"timest'])
def test_incomplete_entry_of_a_log_is_dropped(tmp_path: Path, table: str, data: bytes) -> None:
    """After a power failure before the commits of a step were synced; in `_steps` it has undone the step."""
    warehouse = Warehouse(tmp_path)
    with warehouse.writing():
        warehouse.commit("ingest", [write_file(warehouse, 0)])
    file = write_file(warehouse, 3)
    commit_and_die(warehouse, 1 + (table != "_steps"), "ingest", [file], run=run_of(2))
    newest_entry(tmp_path, table).write_bytes(data)
    after = Warehouse(tmp_path)
    assert after.snapshot.number == 1 + (table != "_steps")
    with after.writing():
        after.commit("ingest", [write_file(after, 6)])
    assert [f.first_offset for f in Warehouse(tmp_path).files("coordinator_record")] == [
        0, *([3] if table != "_steps" else []), 6
    ]  # fmt: skip


def test_incomplete_checkpoint_is_dropped(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    with warehouse.writing():
        warehouse.commit("ingest", [write_file(warehouse, 0)])
    table = DeltaTable(str(tmp_path / "coordinator_record"))
    table.create_checkpoint()
    (checkpoint,) = (tmp_path / "coordinator_record" / "_delta_log").glob("*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    assert Warehouse(tmp_path).snapshot == warehouse.snapshot
    assert not checkpoint.exists()


# tables that others changed -----------------------------------------------------------------------


def test_table_that_another_program_rewrote_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "logs", log(3, 20))
    warehouse = streaming.built_at_once(tmp_path / "w", tmp_path / "logs")
    path = str(tmp_path / "w" / "rebalance")
    table = DeltaTable(path)
    write_deltalake(path, table.to_pyarrow_table(), mode="overwrite")
    with pytest.raises(
        DamagedWarehouse, match=r"rebalance: .* Another program has rewritten the table: restore"
    ):
        Warehouse(tmp_path / "w")
    DeltaTable(path).restore(table.version())
    assert Warehouse(tmp_path / "w").snapshot == warehouse.snapshot


def test_tables_of_different_steps_are_refused(tmp_path: Path) -> None:
    """Entries of a table were lost."""
    warehouse = Warehouse(tmp_path)
    for n in range(3):
        warehouse.commit("ingest", [write_file(warehouse, n)])
    for _ in range(2):
        newest_entry(tmp_path, "coordinator_record").unlink()
    warehouse.commit("ingest", [], run=run_of(4))
    with pytest.raises(DamagedWarehouse, match="coordinator_record is at step 1 and should be at 3"):
        Warehouse(tmp_path)


def test_table_with_other_columns_is_replaced_only_as_a_whole(tmp_path: Path) -> None:
    """A version of konvene with another column rebuilds gold; it does not add to what an older one wrote."""
    older = Warehouse(tmp_path)
    first, second = write_file(older, 0), write_file(older, 3)
    older.commit("ingest", [first])
    log = Warehouse(tmp_path).store._table("coordinator_record")  # type: ignore[attr-defined]
    log._schema = log._schema.append(pa.field("added", pa.int32()))
    action = Action(
        second.path.partition("/")[2], second.bytes, second.rows, 0, statistics='{"numRecords":3}'
    )
    with pytest.raises(DamagedWarehouse, match="has other columns than this version of konvene writes"):
        log.commit(2, [action], [])
    log.commit(2, [action], [action._replace(path=first.path.partition("/")[2])])
    table = DeltaTable(str(tmp_path / "coordinator_record"))
    assert [field.name for field in table.schema().fields][-1] == "added"
    assert table.get_add_actions().column("path").to_pylist() == [action.path]
    assert table.transaction_version("konvene") == 2


# other readers ------------------------------------------------------------------------------------


def counts(path: Path, name: str) -> dict[str, int]:
    """Return the number of rows of a table as each of its readers counts them."""
    table = DeltaTable(str(path / name))
    arrow = table.to_pyarrow_dataset()
    return {
        "deltalake": table.count(),
        "polars": polars.scan_delta(str(path / name)).select(polars.len()).collect().item(),
        "duckdb": duckdb.sql("select count(*) from arrow").fetchall()[0][0],
        "pyarrow": arrow.count_rows(),
    }


def test_other_engines_read_the_same_rows_after_each_step(tmp_path: Path) -> None:
    write(tmp_path / "logs", log(7, 40), cuts=[20])
    home = tmp_path / "w"
    warehouse = Warehouse(home)
    for parts in streaming.steps(tmp_path / "logs", 60):
        step(warehouse, parts, Local(), [str(tmp_path / "logs")])
        for name in ("coordinator_record", "rebalance", "lag", "pipeline_run"):
            ours = sum(file.rows for file in warehouse.files(name))
            assert set(counts(home, name).values()) == {ours}, name
    for name in warehouse.tables():
        rows = DeltaTable(str(home / name)).to_pyarrow_table().to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, read.table(warehouse, name).to_pylist())), name
        assert polars.read_delta(str(home / name)).height == len(rows)


def test_engines_skip_files_by_statistics(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    write(tmp_path / "logs", log(7, 40), cuts=[20])
    ingest(warehouse, [tmp_path / "logs"], Local(), task_bytes=1000)
    build(warehouse, Local())
    for name in warehouse.tables():
        actions = polars.DataFrame(DeltaTable(str(tmp_path / name)).get_add_actions(flatten=True))
        for row in actions.to_dicts():
            rows = polars.read_parquet(tmp_path / name / row["path"])
            names = (each.removeprefix("min.") for each in row if each.startswith("min."))
            for column in (each for each in names if row[f"min.{each}"] is not None):
                found = rows[column].min(), rows[column].max(), rows[column].null_count()
                assert found == tuple(row[f"{kind}.{column}"] for kind in ("min", "max", "null_count")), (
                    column
                )
    table = DeltaTable(str(tmp_path / "coordinator_record"))
    counted = polars.DataFrame(table.get_add_actions(flatten=True)).to_dict(as_series=False)
    assert None not in [*counted["min.offset"], *counted["max.timestamp_ms"]]
    assert set(counted["max.key_type"]) == {None}


def test_readers_on_the_page_read_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/explain.md."""
    write(tmp_path / "logs", log(7, 20))
    warehouse = streaming.built_at_once(tmp_path / "tables", tmp_path / "logs")
    (block,) = (each for each in blocks() if "read_delta" in each.text)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(block.text, str(block.page), "exec"), found)
    rows = sum(file.rows for file in warehouse.files("rebalance"))
    assert found["rebalances"].height == sum(count for _, count in found["by_cause"]) == rows > 0
