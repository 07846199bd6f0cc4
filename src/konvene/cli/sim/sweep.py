"""`konvene sim sweep`: simulate many seeds of many plans, on all processors or a cluster, into tables.

`what-if` simulates a plan some twenty times and prints figures. A sweep simulates each combination of varied
options for any number of seeds, can be interrupted and resumed, and writes rebalances with the schema of
`konvene explain`. It runs in processes of this machine; Spark is for clusters, since its start takes longer
than most sweeps.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables
from konvene.cli.sim.options import INTERRUPTED, Seeds, jobs_option, last_seed, pairs_of, seeds_option
from konvene.cli.sim.plan import can_plot, plan_options
from konvene.plurals import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from konvene.pipeline.engine import Engine
    from konvene.pipeline.sweeps.sweep import Figure
    from konvene.sim.runs.what_if import Plan

LOCAL, SPARK = "local", "spark"
DEFAULT_MASTER = "local[*]"


@click.command()
@plan_options
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=V1,V2,…",
    help="An option or broker setting and its values; may be repeated: all combinations are simulated.",
)
@seeds_option("0..99")
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
    type=click.Choice([LOCAL, SPARK]),
    help="Run in processes of this machine, or as Spark jobs [default: local; spark with --master].",
)
@click.option(
    "--master", metavar="URL", help=f"Spark master [default with --engine spark: {DEFAULT_MASTER}]."
)
@jobs_option
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.svg|.png",
    help="Plot the distributions; needs `pip install 'konvene[plot]'`.",
)
@json_option
def sweep(
    plan: Plan, vary: tuple[str, ...], seeds: Seeds, folder: Path, engine: str | None, master: str | None,
    workers: int, picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate all combinations of plans with many seeds, and write the results as tables.

    After Ctrl-C the same command continues with the missing runs.

    \b
    konvene sim sweep --members 400 --kill-rate 2/min --vary static=false,true --out kills
    konvene sim sweep --rolling-restart --vary session-timeout-ms=10000,30000,45000 \\
        --vary assignor=range,cooperative-sticky --seeds 0..999 --out deploys --plot deploys.svg
    """
    try:
        from konvene.pipeline.sweeps.sweep import NotThisSweep, completed, figures, grid, read
        from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_RUN
    except ImportError as error:
        fail(f"sweeps need {error.name}, which is not installed", "pip install 'konvene[explain]'")
    try:
        plans = grid(plan, [(name, values.split(",")) for name, values in pairs_of("--vary", vary)])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if picture is not None:
        can_plot(picture)
    if engine is None:
        engine = LOCAL if master is None else SPARK
    if engine == LOCAL and master is not None:
        raise click.UsageError("--master needs --engine spark.")
    if engine == SPARK and workers:
        raise click.UsageError("--jobs needs --engine local; --master 'local[N]' sets the number for Spark.")
    seed_range = range(seeds.first, last_seed(seeds, "sweep") + 1)
    try:
        with _engine(engine, master or DEFAULT_MASTER, workers) as (runner, slots):
            played = _play(folder, plans, seed_range, runner, slots)
    except NotThisSweep as error:
        fail(str(error))
    except KeyboardInterrupt:
        done, total = completed(folder, plans, seed_range), len(plans) * len(seed_range)
        note(f"interrupted after {done} of {counted(total, 'run')}; the same command resumes from here")
        raise click.exceptions.Exit(INTERRUPTED) from None
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
    note(f"Simulated {counted(played, 'run')}; tables: {folder}/sim_run, sim_metric, sim_rebalance")
    if unstable:
        note(f"Never stable: {counted(unstable, 'run')}, in sim_run but not in the figures")
    print_tables([_table(found)])


def _play(folder: Path, plans: dict[str, Plan], seeds: range, engine: Engine, slots: int) -> int:
    from konvene.pipeline.sweeps.sweep import sweep as play

    progress = Progress(len(plans) * len(seeds), unit="runs", beside_output=True)
    try:
        return play(folder.absolute(), plans, seeds, engine, slots=slots, progress=progress.add)
    finally:
        progress.clear()


@contextlib.contextmanager
def _engine(engine: str, master: str, workers: int) -> Iterator[tuple[Engine, int]]:
    """Yield the engine and the number of tasks that it runs at once; at the end, stop it."""
    from konvene.pipeline.engine import Local, Processes
    from konvene.sim.runs.parallel import processors

    if engine == SPARK:
        with _spark(master) as started:
            yield started
        return
    workers = workers or processors()
    yield (Local() if workers == 1 else Processes(workers)), workers


@contextlib.contextmanager
def _spark(master: str) -> Iterator[tuple[Engine, int]]:
    from konvene.pipeline.engine import Spark
    from konvene.pipeline.spark.session import abort, build

    if sys.stderr.isatty():
        note(f"starting Spark ({master})")
    try:
        session = _start(lambda: build(master))
    except RuntimeError as error:
        fail(str(error), "--engine local needs no Spark.")
    stop: Callable[[], None] = session.stop
    try:
        yield Spark(session), session.sparkContext.defaultParallelism
    except KeyboardInterrupt:
        stop = abort
        raise
    finally:
        with _uninterrupted():
            stop()


def _start(build: Callable[[], SparkSession]) -> SparkSession:
    """Start Spark in another thread, since its calls of the JVM do not end properly after Ctrl-C.

    In the main thread it would also install a handler of SIGINT that calls the JVM amid other calls."""
    from konvene.pipeline.spark.session import abort

    with ThreadPoolExecutor(1, "konvene-spark") as pool:
        starting = pool.submit(build)
        try:
            return starting.result()
        except KeyboardInterrupt:
            with _uninterrupted():
                while not starting.done():
                    abort()
                    wait([starting], 0.2)
                abort()
            raise


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore SIGINT during the block, and messages about lost connections to the JVM."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logged)
        if is_main:
            signal.signal(signal.SIGINT, before)


def _table(found: Sequence[Figure]) -> Table:
    rows: list[list[object]] = []
    for f in sorted(found, key=lambda f: f.metric):
        name = f"{f.metric} ({f.unit})" if f.unit else f.metric
        rows.append(
            [name, f.plan, f.runs, *(f"{value:.6g}" for value in (f.mean, f.p50, f.p90, f.p99, f.most))]
        )
    return Table(("METRIC, PER RUN", "PLAN", "RUNS", "MEAN", "P50", "P90", "P99", "MAX"), rows)
