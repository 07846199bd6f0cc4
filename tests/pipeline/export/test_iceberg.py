"""An Iceberg table has the rows of the warehouse's table once, for repeated and interrupted exports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.commit_logs import LOGS
from tests.pipeline.export.homes import TABLE, add, warehouse

from konvene.pipeline.engine import Local
from konvene.pipeline.export import ExportError, MissingExtra, iceberg
from konvene.pipeline.export.iceberg import NAMESPACE, STEP, catalog, export
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse

pytest.importorskip("pyiceberg")


def table(home: Path, name: str = TABLE) -> Any:
    return catalog(home).load_table((NAMESPACE, name))


def names(home: Path) -> list[str]:
    return sorted(row["topic"] for row in table(home).scan().to_arrow().to_pylist())


def shown(row: dict[str, Any]) -> str:
    """Return a row as `pyiceberg` shows it: a null list is empty."""
    return repr({name: value or None if isinstance(value, list) else value for name, value in row.items()})


def test_tables_of_kafkas_logs_are_read_back_row_by_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Covers every layer and column type: bytes, lists of structs, short integers; without a warning for
    each."""
    home = Warehouse(tmp_path / "warehouse")
    ingest(home, [LOGS / "share"], Local())
    made = {done.table: done for done in export(home, tmp_path / "out")}
    assert sorted(made) == home.tables()
    for name, done in made.items():
        found = table(tmp_path / "out", name).scan().to_arrow()
        expected = read.table(home, name)
        assert sorted(map(shown, found.to_pylist())) == sorted(map(shown, expected.to_pylist())), name
        assert done.rows == expected.num_rows
        assert found.schema.names == expected.schema.names
    assert not any(done.added or done.removed for done in export(home, tmp_path / "out"))
    assert not [record for record in caplog.records if "statistics missing" in record.message]


def test_files_are_added_and_removed_in_one_snapshot(tmp_path: Path) -> None:
    home, first = warehouse(tmp_path)
    (done,) = export(home, tmp_path)
    assert done[2:] == (1, 2, 1, 0)
    add(home, "c", removed=(first,))
    (done,) = export(home, tmp_path)
    assert done[2:] == (1, 1, 1, 1)
    assert names(tmp_path) == ["c"]
    assert [s.summary.additional_properties[STEP] for s in table(tmp_path).snapshots()] == ["1", "2"]


def test_table_without_rows_is_emptied(tmp_path: Path) -> None:
    home, first = warehouse(tmp_path)
    export(home, tmp_path)
    home.commit("build", [], [first])
    (done,) = export(home, tmp_path)
    assert done[2:] == (0, 0, 0, 1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("broken", ["place", "_commit"])
def test_interrupted_export_is_completed_by_the_next(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export killed before or after writing files changes no visible row; the next one completes it."""
    home, _ = warehouse(tmp_path)
    export(home, tmp_path)
    add(home, "c")
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, broken, _crash)
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
    commit = iceberg._commit

    def twice(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(iceberg, "_commit", commit)
            export(home, tmp_path)
        commit(*args)

    monkeypatch.setattr(iceberg, "_commit", twice)
    with pytest.raises(ExportError, match="was changed meanwhile"):
        export(home, tmp_path)
    assert names(tmp_path) == ["a", "b", "c"]


def test_older_state_never_replaces_a_newer_one(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    older = Warehouse(home.path)
    add(home, "c")
    export(home, tmp_path)
    with pytest.raises(ExportError, match="is of step 2, and the warehouse is at 1"):
        export(older, tmp_path)
    assert names(tmp_path) == ["a", "b", "c"]


def test_table_with_other_columns_is_rejected(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    found = catalog(tmp_path)
    found.create_namespace(NAMESPACE)
    found.create_table((NAMESPACE, TABLE), read.schema_of("lag"))
    with pytest.raises(ExportError, match="has other columns: drop the table"):
        export(home, tmp_path)


def test_missing_library_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    home, _ = warehouse(tmp_path)
    with pytest.raises(MissingExtra, match=r"pip install 'konvene\[iceberg\]'"):
        export(home, tmp_path)


def test_table_and_columns_have_descriptions(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    export(home, tmp_path)
    made = table(tmp_path)
    assert made.schema().fields[2].doc == "The name."
    assert made.properties["comment"].startswith("Topic names by id")
