"""Sweeps: many seeds of many simulation plans, as distributions of their metrics.

A task runs some seeds of one plan and writes its results to files named by these seeds. They depend only on
the plan, the seeds and the version of konvene. A seed is complete when the file of its run exists, which is
written last. So an interrupted sweep continues where it stopped, even with another task size, and no seed
counts twice.

The first seed of each plan is a task of its own, to measure how long a seed takes: a task should take much
longer than its start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from konvene import __version__
from konvene.pipeline.engine import Engine
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.pipeline.tables import Table
from konvene.pipeline.tables.sweeps import SIM_METRIC, SIM_REBALANCE, SIM_RUN
from konvene.sim.runs.meter import Outcome, percentile
from konvene.sim.runs.what_if import Plan, run_scene

__all__ = ["Figure", "NotThisSweep", "completed", "figures", "grid", "open_sweep", "read", "sweep"]

MIN_TASK_S = 2.5
"""Minimum duration that a task should have."""
TASKS_PER_SLOT = 24
"""Maximum number of tasks per slot."""
TABLES = (SIM_REBALANCE, SIM_METRIC, SIM_RUN)
"""Tables of a sweep, in the order in which they are written."""


class NotThisSweep(ValueError):
    """The folder belongs to a sweep of other plans, or of another version of konvene."""


@dataclass(frozen=True, slots=True)
class Task:
    """Some seeds of a plan: from the first to the last, both included."""

    folder: Path
    title: str
    plan: Plan
    first: int
    last: int


class Done(NamedTuple):
    title: str
    runs: int
    took_s: float


class Figure(NamedTuple):
    """Statistics of a metric over the runs of a plan: the mean, nearest-rank quantiles and the maximum."""

    plan: str
    metric: str
    unit: str
    runs: int
    mean: float
    p50: float
    p90: float
    p99: float
    most: float


# --- the sweep -----------------------------------------------------------------------------------


def open_sweep(folder: Path, plans: Mapping[str, Plan]) -> None:
    """Create the folder of a sweep, or add plans to an existing one.

    Raises NotThisSweep if the folder has other plans by the same titles, or is of another version."""
    by_title = {title: plan.as_dict() for title, plan in plans.items()}
    file = folder / "sweep.json"
    if file.exists():
        found = json.loads(file.read_text("utf-8"))
        if found["version"] != __version__:
            raise NotThisSweep(f"{folder} was made by konvene {found['version']}: choose another folder")
        for title, plan in by_title.items():
            if found["plans"].get(title, plan) != plan:
                raise NotThisSweep(f"{folder} has other runs by the name of {title!r}: choose another folder")
        by_title = found["plans"] | by_title
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / "sweep.json.new"
    text = json.dumps({"version": __version__, "plans": by_title}, indent=2, default=list)
    beside.write_text(text + "\n", "utf-8")
    beside.replace(file)


def sweep(
    folder: Path,
    plans: Mapping[str, Plan],
    seeds: range,
    engine: Engine,
    *,
    slots: int,
    progress: Callable[[int], None] = lambda runs: None,
) -> int:
    """Run the seeds of all plans that are not complete yet, and return their number.

    Raises NotThisSweep. `slots` is the number of tasks that run at a time; `progress` receives numbers of
    completed runs."""
    open_sweep(folder, plans)
    missing = {title: _missing(folder, title, seeds) for title in plans}
    progress(sum(len(seeds) - len(each) for each in missing.values()))
    firsts = [Task(folder, title, plans[title], some[0], some[0]) for title, some in missing.items() if some]
    each_s, played = {}, 0
    with contextlib.closing(engine.run(play, firsts)) as results:
        for done in results:
            each_s[done.title] = done.took_s
            played += done.runs
            progress(done.runs)
    all_s = sum(len(missing[title][1:]) * took_s for title, took_s in each_s.items())
    task_s = max(MIN_TASK_S, all_s / (slots * TASKS_PER_SLOT))
    tasks = [
        Task(folder, title, plan, some[0], some[-1])
        for title, plan in plans.items()
        for some in _consecutive(missing[title][1:], max(1, math.ceil(task_s / each_s.get(title, task_s))))
    ]
    with contextlib.closing(engine.run(play, tasks)) as results:
        for done in results:
            played += done.runs
            progress(done.runs)
    return played


def completed(folder: Path, plans: Mapping[str, Plan], seeds: range) -> int:
    """Return the number of runs of these plans and seeds that the folder contains."""
    return sum(len(seeds) - len(_missing(folder, title, seeds)) for title in plans)


def _missing(folder: Path, title: str, seeds: range) -> list[int]:
    """Return the seeds that are not complete yet."""
    there = {seed for first, last in _ranges(folder, title) for seed in range(first, last + 1)}
    return [seed for seed in seeds if seed not in there]


def _consecutive(seeds: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Split seeds into ranges of consecutive seeds, each of at most `most`."""
    begin = 0
    for end in range(1, len(seeds) + 1):
        if end == len(seeds) or seeds[end] != seeds[end - 1] + 1 or end - begin == most:
            yield seeds[begin:end]
            begin = end


# --- a task --------------------------------------------------------------------------------------


def play(task: Task) -> Done:
    """Run the task's seeds and write their results to files."""
    began_s = time.perf_counter()
    rows: dict[str, list[dict[str, object]]] = {SIM_RUN.name: [], SIM_METRIC.name: []}
    rebalances = []
    for seed in range(task.first, task.last + 1):
        run = {"plan": task.title, "seed": seed}
        params = [(name, _as_text(value)) for name, value in task.plan.as_dict().items()]
        try:
            scene = run_scene(task.plan, seed)
        except ValueError:
            rows[SIM_RUN.name].append(run | _unstable_run() | {"params": params})
            continue
        rows[SIM_RUN.name].append(run | _stable_run(scene.outcome) | {"params": params})
        rows[SIM_METRIC.name] += [run | metric for metric in _metrics(task.plan, scene.outcome)]
        names = {str(topic.id): topic.name for topic in scene.topics.by_name.values()}
        tables = tables_of(f"{task.title}#{seed}", scene.log.batches, scene.meter.explained_rebalances, names)
        rebalances.append(tables["rebalance"])
    tables = {
        name: pa.Table.from_pylist(rows[name], t.schema) for name, t in _BY_NAME.items() if name in rows
    }
    tables[SIM_REBALANCE.name] = pa.concat_tables([SIM_REBALANCE.schema.empty_table(), *rebalances])
    for table in TABLES:
        _write(
            _folder(task.folder, table, task.title) / f"{task.first}-{task.last}.parquet", tables[table.name]
        )
    return Done(task.title, task.last - task.first + 1, time.perf_counter() - began_s)


_BY_NAME = {table.name: table for table in TABLES}


def _write(file: Path, table: pa.Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    pq.write_table(table, beside, compression="zstd")
    beside.replace(file)


def _folder(folder: Path, table: Table, title: str) -> Path:
    return folder / table.name / hashlib.sha256(title.encode()).hexdigest()[:12]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _unstable_run() -> dict[str, object]:
    return dict.fromkeys(SIM_RUN.schema.names, 0) | {"outcome": "never stable"}


def _stable_run(outcome: Outcome) -> dict[str, object]:
    values = {
        name: getattr(outcome, name) for name in ("killed", "restarted", "failovers", "stopped", "steps")
    }
    values |= {"outcome": "played", "stable_after_s": outcome.stable_after_s}
    return values | {"rebalances": len(outcome.rebalances)}


def _metrics(plan: Plan, outcome: Outcome) -> Iterator[dict[str, object]]:
    stable = Counter(r.took_s for r in outcome.rebalances if r.state == "Stable")
    figures = [
        ("rebalances", "", len(outcome.rebalances)),
        ("partitions moved", "", sum(r.moved for r in outcome.rebalances)),
        ("partition-seconds unavailable", "s", outcome.unavailable_s),
        ("unavailable", "%", 100 * outcome.unavailable_s / (plan.partitions * plan.minutes * 60)),
        ("unavailable at once", "", outcome.most_unavailable),
        ("longest outage", "s", max(outcome.outages_ms, default=0) / 1000),
        ("member-seconds idle", "s", outcome.idle_s),
    ]
    if stable:
        figures.append(("time to stable, median", "s", percentile(stable, 0.5)))
        figures.append(("time to stable, longest", "s", max(stable)))
    for metric, unit, value in figures:
        yield {"metric": metric, "unit": unit, "value": round(value, 6)}


# --- results -------------------------------------------------------------------------------------


def read(folder: Path, table: Table) -> pa.Table:
    """Return all rows of a table of the sweep, by plan and seed; results of incomplete seeds are left out."""
    found = [table.schema.empty_table()]
    for title in json.loads((folder / "sweep.json").read_text("utf-8"))["plans"]:
        for first, last in sorted(_ranges(folder, title)):
            file = _folder(folder, table, title) / f"{first}-{last}.parquet"
            found.append(pq.read_table(file, schema=table.schema))
    return pa.concat_tables(found)


def _ranges(folder: Path, title: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last seed of each file of runs."""
    for file in _folder(folder, SIM_RUN, title).glob("*.parquet"):
        first, _, last = file.stem.partition("-")
        yield int(first), int(last)


def figures(metrics: pa.Table) -> list[Figure]:
    """Return the statistics of each metric of each plan, in the order of the rows."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in metrics.select(["plan", "metric", "unit", "value"]).to_pylist():
        values.setdefault((row["plan"], row["metric"], row["unit"]), []).append(row["value"])
    return [
        Figure(*of, len(met), math.fsum(met) / len(met), *_quantiles(Counter(met)), max(met))
        for of, met in values.items()
    ]


def _quantiles(met: Counter[float]) -> tuple[float, float, float]:
    return percentile(met, 0.5), percentile(met, 0.9), percentile(met, 0.99)


def grid(plan: Plan, vary: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Plan]:
    """Return a plan for each combination of the values to vary, by a title that names them.

    `vary` has names of fields with their values. Raises ValueError for invalid plans."""
    plans = {"": plan}
    for name, values in vary:
        plans = {
            f"{title};{name}={value}".removeprefix(";"): each.changed(name, value)
            for title, each in plans.items()
            for value in values
        }
    for each in plans.values():
        each.check()
    return {title or "as asked": each for title, each in plans.items()}
