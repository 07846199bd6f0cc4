"""Exported files appear completely in their new place, whatever was there before."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.export.homes import TABLE, add, warehouse

from konvene.pipeline.export.files import ExportError, chosen, place, wanted


def test_a_file_is_linked_not_copied(tmp_path: Path) -> None:
    home, file = warehouse(tmp_path)
    (one,) = wanted(home, TABLE).values()
    place([one], tmp_path / "out")
    target = tmp_path / "out" / one.name
    assert target.stat().st_ino == Path(home.where(file)).stat().st_ino


def test_a_file_on_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    home, file = warehouse(tmp_path)
    monkeypatch.setattr(os, "link", refuse)
    (one,) = wanted(home, TABLE).values()
    place([one], tmp_path / "out")
    assert (tmp_path / "out" / one.name).read_bytes() == Path(home.where(file)).read_bytes()


def test_incomplete_file_of_a_crash_is_replaced(tmp_path: Path) -> None:
    home, file = warehouse(tmp_path)
    (one,) = wanted(home, TABLE).values()
    target = tmp_path / "out" / one.name
    target.parent.mkdir(parents=True)
    for half in (target, target.with_name(f".{target.name}.part")):
        half.write_bytes(b"PAR1")
    place([one], tmp_path / "out")
    assert target.read_bytes() == Path(home.where(file)).read_bytes()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("call", range(6))
def test_interrupted_export_is_completed_at_any_point(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupts between any two system calls; nothing is cleaned up, as if the process were killed."""
    home, _ = warehouse(tmp_path)
    add(home, "c")
    add(home, "d")
    calls = iter(range(100))

    def interrupting(real: Callable[..., None]) -> Callable[..., None]:
        def act(*given: object) -> None:
            if next(calls) == call:
                raise KeyboardInterrupt
            real(*given)

        return act

    files = wanted(home, TABLE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", interrupting(os.link))
        patch.setattr(os, "replace", interrupting(os.replace))
        with pytest.raises(KeyboardInterrupt):
            place(files.values(), tmp_path / "out")
    for file in files.values():
        target = tmp_path / "out" / file.name
        assert not target.exists() or target.stat().st_size == file.bytes, "half a file has a real name"
    place(files.values(), tmp_path / "out")
    there = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert there == sorted(Path(name).name for name in files)


def test_missing_warehouse_file_is_named_in_the_error(tmp_path: Path) -> None:
    home, file = warehouse(tmp_path)
    Path(home.where(file)).unlink()
    with pytest.raises(ExportError, match=r"v1-a-\w+\.parquet is not there any more; refresh the warehouse"):
        place(wanted(home, TABLE).values(), tmp_path / "out")


def test_all_tables_with_rows_are_chosen_and_those_exported_before(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    assert chosen(home, None, []) == [TABLE]
    assert chosen(home, None, ["lag", "somebody_elses"]) == ["lag", TABLE]
    assert chosen(home, ["lag", TABLE], []) == [TABLE]
    with pytest.raises(ExportError, match="there is no table lags"):
        chosen(home, ["lags"], [])


def test_a_second_file_beside_the_first_keeps_the_first(tmp_path: Path) -> None:
    home, _ = warehouse(tmp_path)
    add(home, "c")
    files = wanted(home, TABLE)
    assert sorted(file.rows for file in files.values()) == [1, 2]
