"""Sweeps have the same rows for any number of tasks and any engine, and after interruptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from konvene.pipeline.engine import Local
from konvene.pipeline.sweeps.sweep import NotThisSweep, figures, grid, read, sweep
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN
from konvene.sim.runs.what_if import Plan

SMALL = Plan(members=3, partitions=6, minutes=3, rolling_restart=True, down_for_s=5, deploy_pause_s=5)
VARY = [("static", ["false", "true"]), ("protocol", ["classic", "consumer"])]
SEEDS = range(4)


class Interrupted:
    """An engine that stops after some tasks."""

    name = "dies"

    def __init__(self, after: int) -> None:
        self.left = after

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield work(task)


@pytest.fixture(scope="module")
def complete_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert sweep(folder, grid(SMALL, VARY), SEEDS, Local(), slots=1) == 4 * len(SEEDS)
    return folder


def test_grid_has_a_plan_for_each_combination() -> None:
    plans = grid(SMALL, VARY)
    assert list(plans) == [
        "static=false;protocol=classic", "static=false;protocol=consumer",
        "static=true;protocol=classic", "static=true;protocol=consumer",
    ]  # fmt: skip
    assert plans["static=true;protocol=consumer"].static
    assert list(grid(SMALL, [])) == ["as asked"]


def test_unknown_option_value_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown protocol pigeon"):
        grid(SMALL, [("protocol", ["pigeon"])])


def test_each_run_has_its_metrics_and_rebalances_once(complete_sweep: Path) -> None:
    runs, metrics, rebalances = (
        read(complete_sweep, t).to_pylist() for t in (SIM_RUN, SIM_METRIC, SIM_REBALANCE)
    )
    names = list(grid(SMALL, VARY))
    assert [(row["plan"], row["seed"]) for row in runs] == [(name, seed) for name in names for seed in SEEDS]
    assert {row["outcome"] for row in runs} == {"played"}
    counted = {(m["plan"], m["seed"]): m["value"] for m in metrics if m["metric"] == "rebalances"}
    assert counted == {(row["plan"], row["seed"]): row["rebalances"] for row in runs}
    assert {row["rebalances"] for row in runs if row["plan"].startswith("static=true")} == {0}
    assert {row["rebalances"] for row in runs if row["plan"] == "static=false;protocol=classic"} == {6}
    assert {row["cluster"].partition("#")[0] for row in rebalances} == set(names)


def test_rebalance_rows_have_the_schema_and_causes_of_gold(complete_sweep: Path) -> None:
    """A restarted dynamic member leaves and rejoins: two rebalances, with the audit's causes."""
    rows = read(complete_sweep, SIM_REBALANCE)
    assert rows.schema == TABLES["rebalance"].schema
    restarts = [row for row in rows.to_pylist() if row["cluster"] == "static=false;protocol=classic#0"]
    assert [row["cause"] for row in restarts][-6:] == ["member-left", "member-joined"] * 3
    assert {row["evidence"] for row in restarts} == {"observed"}
    assert all(row["client_id"] for row in restarts)
    assert [row["to_epoch"] for row in restarts] == list(range(1, len(restarts) + 1))


def test_interrupted_sweep_resumes(complete_sweep: Path, tmp_path: Path) -> None:
    plans = grid(SMALL, VARY)
    for after in (0, 1, 1):
        with pytest.raises(KeyboardInterrupt):
            sweep(tmp_path, plans, SEEDS, Interrupted(after), slots=8)
    sweep(tmp_path, plans, SEEDS, Local(), slots=3)
    assert sweep(tmp_path, plans, SEEDS, Interrupted(0), slots=1) == 0
    for table in (SIM_RUN, SIM_METRIC, SIM_REBALANCE):
        assert read(tmp_path, table).equals(read(complete_sweep, table)), table


def test_more_seeds_and_plans_are_added(tmp_path: Path) -> None:
    assert sweep(tmp_path, grid(SMALL, []), range(1), Local(), slots=1) == 1
    assert sweep(tmp_path, grid(SMALL, []), range(2), Local(), slots=1) == 1
    assert sweep(tmp_path, grid(SMALL, [("static", ["true"])]), range(1), Local(), slots=1) == 1
    assert [(r["plan"], r["seed"]) for r in read(tmp_path, SIM_RUN).to_pylist()] == [
        ("as asked", 0), ("as asked", 1), ("static=true", 0)
    ]  # fmt: skip


def test_other_plan_of_the_same_name_is_rejected(tmp_path: Path) -> None:
    sweep(tmp_path, grid(SMALL, []), range(1), Local(), slots=1)
    with pytest.raises(NotThisSweep, match="other runs by the name of 'as asked'"):
        sweep(tmp_path, {"as asked": Plan(members=2)}, range(1), Local(), slots=1)


def test_figures_are_observed_values(complete_sweep: Path) -> None:
    found = {(f.plan, f.metric): f for f in figures(read(complete_sweep, SIM_METRIC))}
    restarted = found["static=false;protocol=classic", "rebalances"]
    assert (restarted.runs, restarted.mean, restarted.p50, restarted.most) == (4, 6, 6, 6)
    kept = found["static=true;protocol=classic", "partition-seconds unavailable"]
    assert kept.unit == "s"
    assert kept.p50 == pytest.approx(3 * 2 * 5, rel=0.05)


def test_plot_is_deterministic(complete_sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from konvene.pipeline.sweeps.plot import plot

    metrics = read(complete_sweep, SIM_METRIC)
    plot(tmp_path / "a.svg", metrics)
    plot(tmp_path / "b.svg", metrics)
    drawn = (tmp_path / "a.svg").read_text("utf-8")
    assert drawn == (tmp_path / "b.svg").read_text("utf-8")
    assert "partition-seconds unavailable (s)" in drawn
