"""`konvene sim sweep`: simulate many seeds of many plans, on all processors or a cluster, into tables.

`what-if` simulates a plan some twenty times and prints figures. A sweep simulates each combination of varied
options for any number of seeds, can be interrupted and resumed, and writes rebalances with the schema of
`konvene explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    help="An option or broker setting and its values; may be repeated: all combinations are simulated.",
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
    help="Directory of the tables. Runs that it contains are not simulated again.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="local runs one seed after another in this process.",
)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Spark master.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.svg|.png",
    help="Plot the distributions; needs `pip install 'konvene[plot]'`.",
)
@json_option
def sweep(
    plan: Plan, vary: tuple[str, ...], text: str, folder: Path, engine: str, master: str,
    picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate all combinations of plans with many seeds, and write the results as tables.

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
        raise click.UsageError(f"--seeds {text}: a sweep needs a last seed.")
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
    note(f"{played} runs were simulated; tables: {folder}/sim_run, sim_metric, sim_rebalance")
    if unstable:
        note(f"{unstable} runs never became stable; they are in sim_run but not in the figures")
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


def _engine(engine: str, master: str) -> tuple[Engine, int, Callable[[], None]]:
    """Return the engine, the number of tasks that it runs at once, and a function that stops it."""
    from konvene.pipeline.engine import Local, Spark

    if engine == "local":
        return Local(), 1, lambda: None
    from konvene.pipeline.spark.session import build

    try:
        session = build(master)
    except RuntimeError as error:
        fail(str(error), "--engine local needs no Spark.")
    return Spark(session), session.sparkContext.defaultParallelism, session.stop


def _table(found: Sequence[Figure]) -> Table:
    rows: list[list[object]] = []
    for f in sorted(found, key=lambda f: f.metric):
        name = f"{f.metric} ({f.unit})" if f.unit else f.metric
        rows.append(
            [name, f.plan, f.runs, *(f"{value:.6g}" for value in (f.mean, f.p50, f.p90, f.p99, f.most))]
        )
    return Table(("METRIC, PER RUN", "PLAN", "RUNS", "MEAN", "P50", "P90", "P99", "MAX"), rows)
