"""Merged files have the rows of the small ones in the same order, and nothing else of a warehouse changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.pipeline import streaming
from tests.pipeline.segments import all_files, log, records_of, rows_of, write

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.maintenance.optimize import optimize, plan
from konvene.pipeline.progress import Progress
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Conflict, Warehouse


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write(tmp_path / "logs", log(7, 40), cuts=[20])
    return tmp_path / "logs"


def ordered_rows(warehouse: Warehouse) -> dict[str, list[Any]]:
    """Return the rows of all tables but `pipeline_run`, in their order."""
    tables = set(warehouse.tables()) - {"pipeline_run"}
    return {name: read.table(warehouse, name).to_pylist() for name in tables}


def test_small_files_of_a_log_become_one(tmp_path: Path, logs: Path) -> None:
    warehouse = streaming.built_in_steps(tmp_path / "w", logs, 40)
    rows, gold = ordered_rows(warehouse), streaming.sums(warehouse)
    before = set(warehouse.snapshot.files)
    seen: list[Progress] = []
    done = optimize(warehouse, Local(), seen.append)
    assert done.number == warehouse.snapshot.number and seen[-1].done == 1
    assert ordered_rows(warehouse) == rows and streaming.sums(warehouse) == gold
    for family in ("groups", "commits"):
        (file,) = warehouse.files("coordinator_record", family=family)
        assert (file.first_offset, file.last_offset) == (0, records_of(warehouse)[-1][0])
    assert len(warehouse.files("pipeline_run")) == 2  # The merged ones, and that of this step.
    assert {row["step"] for row in read.table(warehouse, "pipeline_run").to_pylist()} == {
        "ingest", "build", "optimize",
    }  # fmt: skip
    assert before <= all_files(warehouse), "readers may still use the small files"
    assert build(warehouse, Local()).number is None, "gold is up to date"
    assert optimize(warehouse, Local()).number is None or len(warehouse.files("pipeline_run")) <= 2


def test_stream_goes_on_after_its_files_were_merged(tmp_path: Path, logs: Path) -> None:
    """Gold is the same as without, from a reduction of the whole log and from the states after it."""
    warehouse = Warehouse(tmp_path / "w")
    for number, parts in enumerate(streaming.steps(logs, 30)):
        step(warehouse, parts, Local(), [str(logs)])
        if number in (1, 3):
            optimize(Warehouse(tmp_path / "w"), Local())
    once = streaming.built_at_once(tmp_path / "once", logs)
    assert rows_of(warehouse) == rows_of(once)
    assert streaming.sums(warehouse) == streaming.sums(once)


def test_files_are_merged_up_to_the_target(tmp_path: Path, logs: Path) -> None:
    warehouse = streaming.built_in_steps(tmp_path / "w", logs, 30)
    sizes = [file.bytes for file in warehouse.files("offset_commit")]
    target = 3 * max(sizes)
    tasks = [task for task in plan(warehouse, target) if task.files[0].table == "offset_commit"]
    assert all(len(task.files) >= 2 and task.size <= target for task in tasks) and len(tasks) > 1
    offsets = [file.first_offset for task in tasks for file in task.files]
    assert offsets == sorted(offsets)
    rows = ordered_rows(warehouse)
    optimize(warehouse, Local(), target_bytes=target)
    assert ordered_rows(warehouse) == rows
    assert len(warehouse.files("offset_commit")) < len(sizes)


def test_other_engines_learn_that_no_row_changed(tmp_path: Path, logs: Path) -> None:
    warehouse = streaming.built_in_steps(tmp_path / "w", logs, 60)
    optimize(warehouse, Local())
    for name, changes in (("coordinator_record", {False}), ("pipeline_run", {False, True})):
        version = DeltaTable(str(tmp_path / "w" / name)).version()
        entry = (tmp_path / "w" / name / "_delta_log" / f"{version:020}.json").read_text()
        actions = [json.loads(line) for line in entry.splitlines()]
        found = {(each.get("add") or each.get("remove") or {}).get("dataChange") for each in actions}
        assert found - {None} == changes


def test_gold_that_was_out_of_date_is_built_afterwards(tmp_path: Path, logs: Path) -> None:
    from konvene.pipeline.ingest.ingest import take

    warehouse = Warehouse(tmp_path / "w")
    parts = list(streaming.steps(logs, 60))
    step(warehouse, parts[0], Local(), [str(logs)])
    for part in parts[1:]:
        take(warehouse, part, Local(), [str(logs)])
    optimize(warehouse, Local())
    assert build(warehouse, Local()).number is not None
    assert rows_of(warehouse) == rows_of(streaming.built_at_once(tmp_path / "once", logs))


def test_optimize_excludes_other_writers(tmp_path: Path) -> None:
    first, second = Warehouse(tmp_path), Warehouse(tmp_path)
    with first.writing(), pytest.raises(Conflict):
        optimize(second, Local())
