"""`konvene sim what-if`: estimate the effect of a setting, an assignor or static membership on a group.

The options describe a plan; `--compare NAME=VALUE` simulates it again with one change and shows both results.
`docs/simulator.md` describes the measures and the limits of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables
from konvene.cli.sim.options import Seeds, jobs_option, last_seed, pairs_of, seeds_option
from konvene.cli.sim.plan import can_plot, plan_options
from konvene.cli.sim.show import lasting
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.sim.runs.meter import Measured, Outcome
    from konvene.sim.runs.what_if import Plan

BASELINE = "as given"

EVENTS = (
    ("killed", "members killed"),
    ("restarted", "restarted"),
    ("failovers", "failovers"),
    ("stopped", "stopped on their own"),
)


@click.command("what-if")
@plan_options
@click.option("--compare", multiple=True, metavar="NAME=VALUE",
              help="Simulate also with this option or broker setting changed; may be repeated.")  # fmt: skip
@seeds_option("0..19", number_was_count=True)
@click.option("--plot", "picture", type=click.Path(path_type=Path, dir_okay=False, writable=True),
              metavar="FILE.svg|.png", help="Plot the first run; needs konvene[plot].")  # fmt: skip
@jobs_option
@json_option
def what_if(
    plan: Plan, compare: tuple[str, ...], seeds: Seeds, picture: Path | None, workers: int, as_json: bool
) -> None:
    """Simulate a plan many times and show the rebalances and their cost.

    \b
    konvene sim what-if --members 50 --rolling-restart --compare static=true
    konvene sim what-if --kill-rate 1/min --compare session-timeout-ms=10000
    konvene sim what-if --kill-rate 1/min --compare assignor=cooperative-sticky --plot kills.svg
    """
    last = last_seed(seeds, "comparison")
    plans = _plans(plan, compare)
    if picture is not None:
        can_plot(picture)
    results = {title: _play(plan, range(seeds.first, last + 1), workers) for title, plan in plans.items()}
    if picture is not None:
        _plot(picture, [(title, plans[title], outcomes[0]) for title, outcomes in results.items()])
    if as_json:
        print_json([_document(title, plans[title], outcomes) for title, outcomes in results.items()])
    else:
        _show(plans, results)


# --- plans ---------------------------------------------------------------------------------------


def _plans(plan: Plan, compare: Sequence[str]) -> dict[str, Plan]:
    """Return by title the plan and, for each `NAME=VALUE` of `--compare`, the plan with that change.

    Raises UsageError for an invalid one.
    """
    plans = {BASELINE: plan}
    try:
        for name, value in pairs_of("--compare", compare):
            plans[f"{name}={value}"] = plan.changed(name, value)
        for each in plans.values():
            each.check()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return plans


def _play(plan: Plan, seeds: range, workers: int) -> list[Outcome]:
    """Simulate the plan with these seeds; return the outcomes in the order of the seeds."""
    from konvene.sim.runs.parallel import Lost, run_parallel
    from konvene.sim.runs.what_if import PlanRun, run_job

    progress = Progress(len(seeds), unit="runs", beside_output=True)
    turns = [PlanRun(plan, seed, with_timeline=seed == seeds[0]) for seed in seeds]
    outcomes = {}
    try:
        for turn, outcome in run_parallel(
            run_job, turns, workers=min(workers, len(seeds)) if workers else 0, longest_s=3_600
        ):
            if isinstance(outcome, Lost):
                fail(f"seed {turn.seed}: {outcome.why.splitlines()[-1]}")
            outcomes[turn.seed] = outcome
            progress.add(1)
    finally:
        progress.clear()
    return [outcomes[seed] for seed in sorted(outcomes)]


# --- output --------------------------------------------------------------------------------------


def _show(plans: dict[str, Plan], results: dict[str, list[Outcome]]) -> None:
    from konvene.sim.runs.meter import measures

    plan = plans[BASELINE]
    runs = len(results[BASELINE])
    kind = f"{'static ' if plan.static else ''}{plan.protocol} member"
    click.echo(
        f"{counted(plan.members, kind)}, {counted(plan.partitions, 'partition')}, {plan.effective_assignor};"
        f" {plan.minutes:g} min, {counted(runs, 'seed')}."
    )
    for title, outcomes in results.items():
        note(_event_summary(title, outcomes))
    click.echo()
    rows = {
        title: measures(plans[title].partitions, plans[title].minutes, outcomes)
        for title, outcomes in results.items()
    }
    print_tables([_side_by_side(rows), *_causes(results)])


def _event_summary(title: str, outcomes: Sequence[Outcome]) -> str:
    """Return a line with the numbers of simulated events and the time per run."""
    sums = [
        f"{sum(getattr(o, name) for o in outcomes)} {word}"
        for name, word in EVENTS
        if any(getattr(o, name) for o in outcomes)
    ]  # fmt: skip
    took_s = sum(o.wall_s for o in outcomes)
    return f"{title}: {', '.join(sums) or 'no events'}; {lasting(took_s / len(outcomes))} per run"


def _side_by_side(rows: dict[str, list[Measured]]) -> Table:
    heads = ["MEASURE", "PER"]
    for title in rows:
        first = "P50" if len(rows) == 1 else f"{title.upper()}: P50"
        heads += [first, "P99", "MAX"]
    first_rows = next(iter(rows.values()))
    cells: list[list[object]] = []
    for i, row in enumerate(first_rows):
        name = f"{row.name} ({row.unit})" if row.unit else row.name
        line: list[object] = [name, row.per]
        for each in rows.values():
            line += [_number(value, each[i]) for value in (each[i].p50, each[i].p99, each[i].most)]
        cells.append(line)
    return Table(heads, cells)


def _number(value: float, row: Measured) -> str | None:
    if not row.values:
        return None
    if row.unit == "%":
        return f"{value:.3f}"
    return f"{value:.1f}" if row.unit and value < 1000 else f"{value:.0f}"


def _causes(results: dict[str, list[Outcome]]) -> list[Table]:
    """Return a table of rebalance causes for each plan."""
    from konvene.sim.runs.meter import causes_of

    tables = []
    for title, outcomes in results.items():
        rows = causes_of(outcomes)
        head = "CAUSE" if len(results) == 1 else f"CAUSE ({title.upper()})"
        if rows:
            tables.append(Table((head, "REBALANCES", "TIMES"), rows))
    return tables


def _document(title: str, plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, object]:
    from konvene.sim.runs.meter import causes_of, measures

    return {
        "title": title,
        "plan": plan.as_dict(),
        "measures": [row._asdict() for row in measures(plan.partitions, plan.minutes, outcomes)],
        "causes": [{"cause": c, "rebalances": n, "times": times} for c, n, times in causes_of(outcomes)],
        "runs": [outcome.as_dict() for outcome in outcomes],
    }


# --- plot ----------------------------------------------------------------------------------------


def _plot(picture: Path, shown: list[tuple[str, Plan, Outcome]]) -> None:
    from konvene.sim.runs.plot import plot

    try:
        plot(picture, shown)
    except OSError as error:
        fail(f"{picture}: {error.strerror}")
    note(f"wrote {picture} (seed {shown[0][2].seed})")
