"""`konvene sim sweep`: many seeds of many plans, on all cores or on a cluster, kept as tables.

Where `what-if` plays a plan twenty times and shows what came of it, a sweep plays each combination of what
varies as often as you like, can be ended and goes on where it was, and leaves its rebalances in the schema of
those that `konvene explain` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables
from konvene.cli.sim.options import pairs_of, seeds_of
from konvene.cli.sim.plan import can_plot, plan_options

if TYPE_CHECKING:
    from konvene.pipeline.engine import Engine
    from konvene.pipeline.sweeps.sweep import Figure
    from konvene.sim.runs.what_if import Plan


@click.command()
@plan_options
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=V1,V2,…",
    help="An option or a setting of the broker, and the values that it takes. Repeatable: each is"
    " combined with each.",
)
@click.option(
    "--seeds", "text", default="0..99", show_default=True, metavar="A..B", help="Seeds, both included."
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where the tables are. What is there already is not played again.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="local: one seed after the other, in this process.",
)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.svg|.png",
    help="Draw the distributions; `pip install 'konvene[plot]'`.",
)
@json_option
def sweep(
    plan: Plan, vary: tuple[str, ...], text: str, folder: Path, engine: str, master: str,
    picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Play each combination of plans with many seeds, and keep what came of it as tables.

    \b
    konvene sim sweep --members 400 --kill-rate 2/min --vary static=false,true --out kills
    konvene sim sweep --rolling-restart --vary session-timeout-ms=10000,30000,45000 \\
        --vary assignor=range,cooperative-sticky --seeds 0..999 --out deploys --plot deploys.svg
    """
    try:
        from konvene.pipeline.sweeps.sweep import NotThisSweep, figures, grid, read
        from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_RUN
    except ImportError as error:
        fail(f"sweeps need {error.name}, which is not installed", "pip install 'konvene[spark]'")
    try:
        plans = grid(plan, [(name, values.split(",")) for name, values in pairs_of("--vary", vary)])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if picture is not None:
        can_plot(picture)
    seeds = seeds_of(text)
    if seeds.last is None:
        raise click.UsageError(f"--seeds {text}: a sweep has a last seed.")
    try:
        played = _play(folder, plans, range(seeds.first, seeds.last + 1), engine, master)
    except NotThisSweep as error:
        fail(str(error))
    metrics = read(folder, SIM_METRIC)
    found = figures(metrics)
    unstable = read(folder, SIM_RUN).column("outcome").to_pylist().count("never stable")
    if picture is not None:
        from konvene.pipeline.sweeps.plot import plot

        try:
            plot(picture, metrics)
        except OSError as error:
            fail(f"{picture}: {error.strerror}")
    if as_json:
        document = {"played": played, "never_stable": unstable, "figures": [f._asdict() for f in found]}
        print_json(
            document | {"tables": [str(folder / name) for name in ("sim_run", "sim_metric", "sim_rebalance")]}
        )
        return
    note(f"{played} runs were played; tables: {folder}/sim_run, sim_metric, sim_rebalance")
    if unstable:
        note(f"{unstable} runs never became stable at first; they are in sim_run and not in the figures")
    print_tables([_table(found)])


def _play(folder: Path, plans: dict[str, Plan], seeds: range, engine: str, master: str) -> int:
    from konvene.pipeline.sweeps.sweep import sweep as play

    progress = Progress(len(plans) * len(seeds), unit="runs", beside_output=True)
    doer, slots, end = _engine(engine, master)
    try:
        return play(folder.absolute(), plans, seeds, doer, slots=slots, progress=progress.add)
    finally:
        progress.clear()
        end()


def _engine(engine: str, master: str) -> tuple[Engine, int, Any]:
    """Who plays, how many at a time, and what ends it."""
    from konvene.pipeline.engine import Local, Spark

    if engine == "local":
        return Local(), 1, lambda: None
    from konvene.pipeline.spark.session import build

    try:
        session = build(master)
    except RuntimeError as error:
        fail(str(error), "--engine local does without Spark.")
    return Spark(session), session.sparkContext.defaultParallelism, session.stop


def _table(found: Sequence[Figure]) -> Table:
    rows: list[list[Any]] = []
    for f in sorted(found, key=lambda f: f.metric):
        name = f"{f.metric} ({f.unit})" if f.unit else f.metric
        rows.append(
            [name, f.plan, f.runs, *(f"{value:.6g}" for value in (f.mean, f.p50, f.p90, f.p99, f.most))]
        )
    return Table(("METRIC, PER RUN", "PLAN", "RUNS", "MEAN", "P50", "P90", "P99", "MAX"), rows)
