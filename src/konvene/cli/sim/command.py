"""`konvene sim`: run the broker's coordinators in a simulator with faults that are drawn from a seed.

This module has the command group and the commands `run`, `replay`, `faults` and `invariants`. The other
commands have a module each: `soak`, `shrink`, `model_check`, `scenario`, `what_if`, `sweep`. The simulator is
imported when a command is called.

The exit code is 1 if an invariant was violated or a run did not finish.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import Progress, Table, note, print_json, print_tables
from konvene.cli.sim.model_check import model_check
from konvene.cli.sim.options import INTERRUPTED, RunPlan, Seeds, jobs_option, run_options, seeds_option
from konvene.cli.sim.scenario import scenario
from konvene.cli.sim.show import failure_line, print_one, print_totals, violation_lines
from konvene.cli.sim.shrink import shrink
from konvene.cli.sim.soak import soak
from konvene.cli.sim.sweep import sweep
from konvene.cli.sim.what_if import what_if

if TYPE_CHECKING:
    from konvene.sim.runs.parallel import Job, Lost, Result, Totals

VIOLATED = 1


class Interruptible(click.Group):
    """A command group that exits with `INTERRUPTED` on Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


@click.group(cls=Interruptible)
def sim() -> None:
    """Simulate groups with faults from a seed, replay and shrink violations, and compare settings."""


for _command in (soak, shrink, model_check, scenario, what_if, sweep):
    sim.add_command(_command)


# --- run -----------------------------------------------------------------------------------------


@sim.command()
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Run this seed [default: 0].")
@seeds_option(None)
@run_options
@jobs_option
@click.option(
    "--until-violation",
    is_flag=True,
    help="Stop at the first violation and show it. A seed range A.. runs until then.",
)
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE",
              help="Write a line for each event to this file; for a single seed.")  # fmt: skip
@json_option
def run(
    seed: int | None, seeds: Seeds | None, plan: RunPlan, workers: int, until_violation: bool,
    trace: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Run seeds, and check every invariant after every event.

    \b
    konvene sim run --seed 7
    konvene sim run --seeds 0..99 --groups classic,static
    konvene sim run --seeds 1000.. --until-violation
    """
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds cannot be used together.")
    seed_range = seeds if seeds is not None else Seeds(seed or 0, seed or 0)
    if until_violation and seeds is None:
        seed_range = Seeds(seed or 0, None)
    if seed_range.last is None and not until_violation:
        raise click.UsageError(
            f"--seeds {seed_range.first}.. has no end: use --until-violation, or `konvene sim soak`."
        )
    if seed_range.count == 1 and len(plan.kinds) == 1:
        _one(plan.only(seed_range.first), trace, as_json)
    elif trace is not None:
        raise click.UsageError("--trace needs a single seed and a single group type.")
    else:
        _many(plan, seed_range, workers, until_violation, as_json)


def _one(job: Job, trace: Path | None, as_json: bool) -> None:
    try:
        with contextlib.ExitStack() as stack:
            write = None
            if trace is not None:
                file = stack.enter_context(trace.open("w", encoding="utf-8"))
                write = lambda line: print(line, file=file)  # noqa: E731
            result = run_traced(job, write)
    except OSError as error:
        fail(f"cannot write {trace}: {error.strerror}")
    if as_json:
        print_json(result.document)
    else:
        print_one(result)
    if result.violation is not None:
        raise click.exceptions.Exit(VIOLATED)


def run_traced(job: Job, trace: Callable[[str], None] | None) -> Result:
    """Run one job in this process; `trace` is called with each line of its event trace."""
    from konvene.sim.runs.parallel import quiet, run_job

    with quiet():
        return run_job(job, trace)


def _many(plan: RunPlan, seeds: Seeds, workers: int, until_violation: bool, as_json: bool) -> None:
    from konvene.sim.runs.parallel import Lost, Totals, processors, run_many

    totals: dict[str, Totals] = {job.groups: Totals() for job in plan.jobs([seeds.first])}
    failed: list[tuple[Job, Result | Lost]] = []
    workers, began = workers or processors(), time.monotonic()
    interrupted = False
    try:
        with _progress(plan, seeds) as step:
            for job, result in run_many(plan.jobs(seeds), workers=workers):
                totals[job.groups].add(result)
                step(job)
                if isinstance(result, Lost) or result.violation is not None:
                    failed.append((job, result))
                    if not as_json:
                        _print_lines(failure_line(job, result))
                    if until_violation:
                        break
    except KeyboardInterrupt:
        interrupted = True
    failed.sort(key=lambda pair: (pair[0].run.seed, pair[0].groups))
    if as_json:
        print_json(_document(totals, failed))
    else:
        print_totals(totals, time.monotonic() - began, workers=workers)
        if until_violation and failed and not isinstance(failed[0][1], Lost):
            _print_lines(["", *violation_lines(failed[0][1].violation or {})])
    if failed:
        raise click.exceptions.Exit(VIOLATED)
    if interrupted:
        note("interrupted; `konvene sim soak` stores which seeds have been run")
        raise click.exceptions.Exit(INTERRUPTED)


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)


def _document(totals: dict[str, Totals], failed: list[tuple[Job, Result | Lost]]) -> dict[str, object]:
    from konvene.sim.runs.parallel import Lost

    violations = [
        {"seed": job.run.seed, "groups": job.groups, **(result.violation or {})}
        for job, result in failed
        if not isinstance(result, Lost)
    ]
    lost = [
        {"seed": job.run.seed, "groups": job.groups, "why": result.why, "command": job.command()}
        for job, result in failed
        if isinstance(result, Lost)
    ]
    return {
        "totals": {groups: each.as_dict() for groups, each in totals.items()},
        "violations": violations,
        "lost": lost,
    }


@contextlib.contextmanager
def _progress(plan: RunPlan, seeds: Seeds) -> Iterator[Callable[[Job], None]]:
    """Yield a function that counts a completed job on the progress line. No line is shown for a seed range
    without an end."""
    progress = Progress((seeds.count or 0) * len(plan.kinds), unit="runs", beside_output=True)

    def step(job: Job) -> None:
        if seeds.count is not None:
            progress.add(1, f"seed {job.run.seed}, {job.groups}")

    try:
        yield step
    finally:
        progress.clear()


# --- replay --------------------------------------------------------------------------------------


@sim.command()
@click.argument("seed", type=click.IntRange(0))
@run_options
@click.option(
    "--from-step", type=click.IntRange(0), default=0, metavar="N", help="Print only events from this step on."
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Print only the last N lines.")
@json_option
def replay(seed: int, plan: RunPlan, from_step: int, last: int | None, as_json: bool) -> None:
    """Run one seed again and print all events: step, time in ms, actor and event.

    \b
    konvene sim replay 7 --last 40
    """
    kept: deque[str] = deque(maxlen=last)

    def trace(line: str) -> None:
        if _step_of(line) >= from_step:
            if last is None and not as_json:
                click.echo(line)
            else:
                kept.append(line)

    result = run_traced(plan.only(seed), trace)
    if as_json:
        print_json({**result.document, "trace": list(kept)})
    else:
        _print_lines(list(kept))
        if result.violation is None:
            _print_lines(["", "All invariants held."])
        else:
            _print_lines(["", *violation_lines(result.violation)])
    if result.violation is not None:
        raise click.exceptions.Exit(VIOLATED)


def _step_of(line: str) -> int:
    word = line.partition(" ")[0]
    return int(word) if word.isdigit() else 0


# --- fault model and invariants ------------------------------------------------------------------


@sim.command()
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Show the values that this seed draws.")
@json_option
def faults(seed: int | None, as_json: bool) -> None:
    """Print the fault model: parameters that a run draws, and the weights of its faults.

    \b
    konvene sim faults
    konvene sim faults --seed 7
    """
    from konvene.sim.runs.run import Run
    from konvene.sim.world.faults import FAULTS, PARAMETERS, Options

    options = Options.without_faults() if seed is None else Run(seed).options()
    parameters = [(k.name, options[k.name], k.description) for k in PARAMETERS]
    weights = [(f.name, f.weight if seed is None else options.faults[f.name], f.description) for f in FAULTS]
    if as_json:
        names = ("name", "fault_free" if seed is None else "drawn", "sentence")
        print_json(
            {
                "knobs": [dict(zip(names, row, strict=True)) for row in parameters],
                "faults": [dict(zip(("name", "weight", "sentence"), row, strict=True)) for row in weights],
            }
        )
        return
    value = "FAULT-FREE" if seed is None else "DRAWN"
    print_tables(
        [
            Table(("PARAMETER", value, "DESCRIPTION"), parameters),
            Table(("FAULT", "WEIGHT", "DESCRIPTION"), weights),
        ]
    )


@sim.command()
@click.option("--groups", default="", metavar="KIND[,KIND]", help="Only invariants of these group types.")
@json_option
def invariants(groups: str, as_json: bool) -> None:
    """Print the invariants that are checked after every event.

    \b
    konvene sim invariants
    konvene sim invariants --groups streams
    """
    from konvene.sim.reference import invariant_rows

    try:
        rows = invariant_rows([word.strip() for word in groups.split(",") if word.strip()])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json([dict(zip(("invariant", "file", "sentence"), row, strict=True)) for row in rows])
        return
    print_tables([Table(("INVARIANT", "FILE", "DESCRIPTION"), rows)])
