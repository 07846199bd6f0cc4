"""`konvene sim sweep`, as people and programs see it. The work itself is tried in tests/pipeline."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.commands import Said, call

PLAN = ("sim", "sweep", "--members", "2", "--partitions", "4", "--minutes", "2", "--rolling-restart",
        "--down-for", "5s", "--deploy-pause", "5s", "--engine", "local")  # fmt: skip


def swept(folder: Path, *words: str) -> Said:
    return call(None, *PLAN, "--seeds", "0..1", "--out", str(folder), *words)


def test_plans_stand_beside_each_other_with_their_distributions(tmp_path: Path) -> None:
    said = swept(tmp_path / "out", "--vary", "static=false,true")
    assert said.code == 0
    assert "4 runs were simulated" in said.err
    lines = [line.split() for line in said.out.splitlines()]
    assert ["rebalances", "static=false", "2", "4", "4", "4", "4", "4"] in lines
    assert ["rebalances", "static=true", "2", "0", "0", "0", "0", "0"] in lines


def test_what_is_there_is_not_played_again(tmp_path: Path) -> None:
    assert swept(tmp_path / "out", "--json").json["played"] == 2
    again = swept(tmp_path / "out", "--json").json
    assert again["played"] == 0
    assert {f["metric"] for f in again["figures"]} >= {"rebalances", "partitions moved", "unavailable"}
    for table in again["tables"]:
        assert pq.read_table(table).num_rows


def test_the_distributions_can_be_tree_lines(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said = swept(tmp_path / "out", "--plot", str(tmp_path / "drawn.svg"))
    assert said.code == 0
    assert (tmp_path / "drawn.svg").read_text("utf-8").startswith("<?xml")
    nowhere = swept(tmp_path / "out", "--plot", str(tmp_path / "no" / "drawn.svg"))
    assert nowhere.code == 1
    assert "No such file or directory" in nowhere.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--vary", "colour=red"), "colour is neither a setting of the broker nor one of members"),
        (("--vary", "protocol=pigeon"), "unknown protocol pigeon"),
        (("--vary", "static"), "write NAME=VALUE"),
        (("--seeds", "0.."), "a sweep needs a last seed"),
        (("--plot", "drawn.gif"), "must end in .svg or .png"),
    ],
)
def test_what_cannot_be_is_wrong_usage(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    said = call(None, *PLAN, "--out", str(tmp_path / "out"), *words)
    assert said.code == 2
    assert why in " ".join(said.err.split())


def test_where_spark_does_not_start_it_is_said_how_to_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java(master: str) -> None:
        raise RuntimeError("Spark did not start. It needs Java 17 or newer (JAVA_HOME)")

    monkeypatch.setattr("konvene.pipeline.spark.session.build", no_java)
    said = swept(tmp_path / "out", "--engine", "spark")
    assert said.code == 1
    assert "Java 17" in said.err and "--engine local" in said.err


def test_another_sweep_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    swept(tmp_path / "out")
    said = swept(tmp_path / "out", "--kill-rate", "1/min")
    assert said.code == 1
    assert "choose another folder" in said.err
