"""Vacuum deletes what no reader within the retention needs, and nothing else."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.pipeline.segments import all_files
from tests.pipeline.warehouse.test_delta import commit_and_die
from tests.pipeline.warehouse.test_warehouse import run_of, write_file

from konvene.pipeline.maintenance.vacuum import vacuum
from konvene.pipeline.warehouse.memory import InMemory
from konvene.pipeline.warehouse.warehouse import DataFile, Warehouse

NOW, DAY, WEEK = timedelta(), timedelta(days=1), timedelta(days=7)


def steps(warehouse: Warehouse, count: int) -> list[DataFile]:
    """Commit steps that each replace the file of the step before; return the files."""
    files: list[DataFile] = []
    for n in range(count):
        file = write_file(warehouse, n)
        warehouse.commit("build", [file], files[-1:], run=run_of(n))
        files.append(file)
    return files


def age(warehouse: Warehouse, path: str, by: timedelta) -> None:
    """Make a file of the warehouse's directory older."""
    stat = (warehouse.path / path).stat()
    os.utime(warehouse.path / path, (stat.st_atime, stat.st_mtime - by.total_seconds()))


def test_replaced_files_are_deleted_after_the_retention(tmp_path: Path) -> None:
    """The retention begins when a file is replaced, however old it is."""
    warehouse = Warehouse(tmp_path)
    files = steps(warehouse, 4)
    for file in files:
        age(warehouse, file.path, 30 * DAY)
    assert vacuum(warehouse, DAY) == []
    listed = vacuum(warehouse, NOW, dry_run=True)
    assert {each.path for each in listed} == {file.path for file in files[:-1]}
    assert all(each.bytes == (tmp_path / each.path).stat().st_size for each in listed)
    assert vacuum(warehouse, NOW) == listed
    assert all_files(warehouse) == set(warehouse.snapshot.files)
    assert vacuum(warehouse, NOW) == []


def test_leftovers_of_failed_steps_are_deleted(tmp_path: Path) -> None:
    """Files in no log and temporary files, in tables that exist and in one that was never created."""
    warehouse = Warehouse(tmp_path)
    steps(warehouse, 1)
    leftover = write_file(warehouse, 7)
    draft = Path(leftover.path).parent / ".draft.part"
    (tmp_path / draft).write_bytes(b"x")
    new = Path("lag") / "@" / "in-0" / "1-2-v1-0123456789ab.parquet"
    (tmp_path / new).parent.mkdir(parents=True)
    (tmp_path / new).write_bytes(b"x")
    assert vacuum(warehouse, DAY) == []
    leftovers = {leftover.path, draft.as_posix(), new.as_posix()}
    for path in leftovers:
        age(warehouse, path, 2 * DAY)
    assert {each.path for each in vacuum(warehouse, DAY)} == leftovers
    assert all_files(warehouse) == set(warehouse.snapshot.files)
    assert not (tmp_path / "lag" / "@").exists()


def test_files_of_an_interrupted_step_are_kept(tmp_path: Path) -> None:
    """They are in `_steps`, and not yet in their table, which vacuum completes first."""
    warehouse = Warehouse(tmp_path)
    (old,) = steps(warehouse, 1)
    file = write_file(warehouse, 3)
    commit_and_die(warehouse, 1, "build", [file], [old], run=run_of(2))
    assert {each.path for each in vacuum(Warehouse(tmp_path), NOW)} == {old.path}
    assert file.path in all_files(warehouse)


def test_logs_are_shortened_and_read_by_all(tmp_path: Path) -> None:
    """Old readers, new readers and other engines read them; entries within the retention stay."""
    warehouse, reader = Warehouse(tmp_path), Warehouse(tmp_path)
    steps(warehouse, 3)
    reader.refresh()
    steps(warehouse, 20)
    logs = [tmp_path / name / "_delta_log" for name in ("_steps", "coordinator_record", "pipeline_run")]
    vacuum(warehouse, DAY)
    assert all(len(list(folder.glob("*.json"))) == 24 for folder in logs)
    vacuum(warehouse, NOW)
    assert all(len(list(folder.glob("*.json"))) == 1 for folder in logs)
    assert reader.refresh() == Warehouse(tmp_path).snapshot == warehouse.snapshot
    files = {warehouse.where(file) for file in warehouse.files("coordinator_record")}
    assert set(DeltaTable(str(tmp_path / "coordinator_record")).file_uris()) == files
    steps(reader, 2)
    assert warehouse.refresh() == reader.snapshot


def test_retention_has_a_limit(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(ValueError, match="8 days"):
        vacuum(warehouse, 8 * DAY)
    assert vacuum(warehouse, WEEK) == []
    with pytest.raises(TypeError, match="no Delta tables"):
        vacuum(Warehouse(tmp_path, InMemory(tmp_path)))
