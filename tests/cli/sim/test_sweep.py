"""`konvene sim sweep`: output, reuse of results, plots and errors. The simulation itself is tested in
tests/pipeline.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.commands import CommandResult, call

PLAN = ("sim", "sweep", "--members", "2", "--partitions", "4", "--minutes", "2", "--rolling-restart",
        "--down-for", "5s", "--deploy-pause", "5s", "--engine", "local")  # fmt: skip


def sweep(folder: Path, *args: str) -> CommandResult:
    return call(None, *PLAN, "--seeds", "0..1", "--out", str(folder), *args)


def test_sweep_compares_the_distributions_of_plans(tmp_path: Path) -> None:
    result = sweep(tmp_path / "out", "--vary", "static=false,true")
    assert result.code == 0
    assert "4 runs were simulated" in result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert ["rebalances", "static=false", "2", "4", "4", "4", "4", "4"] in lines
    assert ["rebalances", "static=true", "2", "0", "0", "0", "0", "0"] in lines


def test_existing_runs_are_not_repeated(tmp_path: Path) -> None:
    assert sweep(tmp_path / "out", "--json").json["played"] == 2
    again = sweep(tmp_path / "out", "--json").json
    assert again["played"] == 0
    assert {f["metric"] for f in again["figures"]} >= {"rebalances", "partitions moved", "unavailable"}
    for table in again["tables"]:
        assert pq.read_table(table).num_rows


def test_sweep_writes_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = sweep(tmp_path / "out", "--plot", str(tmp_path / "drawn.svg"))
    assert result.code == 0
    assert (tmp_path / "drawn.svg").read_text("utf-8").startswith("<?xml")
    unwritable = sweep(tmp_path / "out", "--plot", str(tmp_path / "no" / "drawn.svg"))
    assert unwritable.code == 1
    assert "No such file or directory" in unwritable.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--vary", "colour=red"), "colour is neither a setting of the broker nor one of members"),
        (("--vary", "protocol=pigeon"), "unknown protocol pigeon"),
        (("--vary", "static"), "write NAME=VALUE"),
        (("--seeds", "0.."), "a sweep needs a last seed"),
        (("--plot", "drawn.gif"), "must end in .svg or .png"),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = call(None, *PLAN, "--out", str(tmp_path / "out"), *args)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_missing_java_error_recommends_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java(master: str) -> None:
        raise RuntimeError("Spark did not start. It needs Java 17 or newer (JAVA_HOME)")

    monkeypatch.setattr("konvene.pipeline.spark.session.build", no_java)
    result = sweep(tmp_path / "out", "--engine", "spark")
    assert result.code == 1
    assert "Java 17" in result.err and "--engine local" in result.err


def test_different_sweep_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    sweep(tmp_path / "out")
    result = sweep(tmp_path / "out", "--kill-rate", "1/min")
    assert result.code == 1
    assert "choose another folder" in result.err
