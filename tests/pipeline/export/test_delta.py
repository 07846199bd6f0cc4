"""A Delta table has the rows of the warehouse's table once, for repeated and interrupted exports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.commit_logs import LOGS
from tests.pipeline.export.homes import TABLE, add, warehouse

from konvene.pipeline.engine import Local
from konvene.pipeline.export import ExportError, MissingExtra, delta
from konvene.pipeline.export.delta import APPLICATION, export
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

deltalake = pytest.importorskip("deltalake")


def table(home: Path, name: str = TABLE) -> Any:
    return deltalake.DeltaTable(str(home / name))


def names(home: Path) -> list[str]:
    return sorted(row["topic"] for row in table(home).to_pyarrow_table().to_pylist())


def test_tables_of_kafkas_logs_are_read_back_row_by_row(tmp_path: Path) -> None:
    """Covers every layer and column type: bytes, lists of structs, nulls in tombstones."""
    home = Warehouse(tmp_path / "warehouse")
    ingest(home, [LOGS / "share"], Local())
    made = {done.table: done for done in export(home, tmp_path / "out")}
    assert sorted(made) == sorted([*home.tables(), "pipeline_run"])
    for name, done in made.items():
        found = table(tmp_path / "out", name).to_pyarrow_table()
        expected = read.table(home, name)
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), name
        assert done.rows == expected.num_rows
        assert found.schema.names == expected.schema.names
    assert not any(done.added or done.removed for done in export(home, tmp_path / "out"))


def test_files_are_added_and_removed_in_one_commit(tmp_path: Path) -> None:
    home, first = warehouse(tmp_path)
    (done,) = export(home, tmp_path)
    assert done[2:] == (1, 2, 1, 0)
    add(home, "c", removed=(first,))
    (done,) = export(home, tmp_path)
    assert done[2:] == (1, 1, 1, 1)
    assert names(tmp_path) == ["c"]
    assert table(tmp_path).version() == 2, "the first made it, the others filled it"
    assert table(tmp_path).transaction_version(APPLICATION) == 2


def test_table_without_rows_is_emptied(tmp_path: Path) -> None:
    home, first = warehouse(tmp_path)
    export(home, tmp_path)
    home.commit("build", [], [first])
    (done,) = export(home, tmp_path)
    assert done[2:] == (0, 0, 0, 1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("broken", ["place", "_commit", "_actions"])
def test_interrupted_export_is_completed_by_the_next(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export killed before or after writing files changes no visible row; the next one completes it."""
    home, _ = warehouse(tmp_path)
    export(home, tmp_path)
    add(home, "c")
    with monkeypatch.context() as patch:
        patch.setattr(delta, broken, _crash)
        with pytest.raises(KeyboardInterrupt):
            export(home, tmp_path)
    assert names(tmp_path) == ["a", "b"]
    (done,) = export(home, tmp_path)
    assert done[2:] == (2, 3, 1, 0)
    assert names(tmp_path) == ["a", "b", "c"]


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_concurrent_export_is_not_committed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = warehouse(tmp_path)
    export(home, tmp_path)
    add(home, "c")
    commit = delta._commit

    def twice(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(delta, "_commit", commit)
            export(home, tmp_path)
        commit(*args)

    monkeypatch.setattr(delta, "_commit", twice)
    with pytest.raises(ExportError, match="was changed meanwhile"):
        export(home, tmp_path)
    assert names(tmp_path) == ["a", "b", "c"]


def test_older_state_never_replaces_a_newer_one(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    older = Warehouse(home.path)
    add(home, "c")
    export(home, tmp_path)
    with pytest.raises(ExportError, match="is of manifest 2, and the warehouse is at 1"):
        export(older, tmp_path)
    assert names(tmp_path) == ["a", "b", "c"]


def test_table_with_other_columns_is_rejected(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    schema = deltalake.Schema.from_arrow(read.schema_of("lag"))
    deltalake.DeltaTable.create(str(tmp_path / TABLE), schema)
    with pytest.raises(ExportError, match="has other columns: move it away"):
        export(home, tmp_path)


def test_missing_library_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    home, _ = warehouse(tmp_path)
    with pytest.raises(MissingExtra, match=r"pip install 'konvene\[delta\]'"):
        export(home, tmp_path)


def test_table_and_columns_have_descriptions(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    export(home, tmp_path)
    made = table(tmp_path)
    assert made.metadata().name == TABLE
    assert made.schema().fields[2].metadata == {"comment": "The name."}
