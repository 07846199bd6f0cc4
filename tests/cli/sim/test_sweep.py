"""`konvene sim sweep`: output, reuse of results, plots and errors. The simulation itself is tested in
tests/pipeline.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.commands import CommandResult, call
from tests.cli.sim.interrupting import interrupted_sweep

from konvene.pipeline.engine import Local

PLAN = ("sim", "sweep", "--members", "2", "--partitions", "4", "--minutes", "2", "--rolling-restart",
        "--down-for", "5s", "--deploy-pause", "5s")  # fmt: skip


def sweep(folder: Path, *args: str, jobs: str = "1") -> CommandResult:
    return call(None, *PLAN, "--seeds", "0..1", "--jobs", jobs, "--out", str(folder), *args)


def test_sweep_compares_the_distributions_of_plans(tmp_path: Path) -> None:
    result = sweep(tmp_path / "out", "--vary", "static=false,true")
    assert result.code == 0
    assert "Simulated 4 runs" in result.err
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
        (("--engine", "local", "--master", "local[2]"), "--master needs --engine spark"),
        (("--master", "local[2]", "--jobs", "2"), "--jobs needs --engine local"),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = call(None, *PLAN, "--out", str(tmp_path / "out"), *args)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def no_java(master: str) -> None:
    raise RuntimeError(f"Spark did not start at {master}. It needs Java 17 or newer (JAVA_HOME)")


@pytest.mark.parametrize(
    ("args", "master"),
    [
        (("--engine", "spark"), "local[*]"),
        (("--master", "spark://far:7077"), "spark://far:7077"),
        (("--engine", "spark", "--master", "local[2]"), "local[2]"),
    ],
)
def test_missing_java_error_recommends_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], master: str
) -> None:
    monkeypatch.setattr("konvene.pipeline.spark.session.build", no_java)
    result = sweep(tmp_path / "out", *args, jobs="0")
    assert result.code == 1
    assert f"at {master}. It needs Java 17" in result.err and "--engine local" in result.err


def test_sweep_uses_processes_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is not started, and the results are those of one process."""
    monkeypatch.setattr("konvene.pipeline.spark.session.build", no_java)
    monkeypatch.setattr(Local, "run", None)
    monkeypatch.setattr("konvene.sim.runs.parallel.processors", lambda: 2)
    in_processes = sweep(tmp_path / "many", jobs="0")
    assert in_processes.code == 0
    monkeypatch.undo()
    assert sweep(tmp_path / "one").out == in_processes.out


def test_different_sweep_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    sweep(tmp_path / "out")
    result = sweep(tmp_path / "out", "--kill-rate", "1/min")
    assert result.code == 1
    assert "choose another folder" in result.err


def test_interrupted_sweep_ends_at_once(tmp_path: Path) -> None:
    """One line with the number of completed runs, exit code 130, and no process is left."""
    process = interrupted_sweep(tmp_path / "out", "--jobs", "2")
    assert process.output == (
        "",
        f"interrupted after {process.runs} of 40 runs; the same command resumes from here\n",
    )
    assert process.code == 130
    assert process.runs > 0
