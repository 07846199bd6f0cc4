"""`konvene sim soak`: run many seeds on all processors until interrupted, and resume later."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import note, print_json
from konvene.cli.sim.options import RunPlan, Seeds, jobs_option, run_options, seeds_option
from konvene.cli.sim.show import failure_line, lasting
from konvene.plurals import counted

REPORT_INTERVAL_S = 60.0


@click.command()
@seeds_option("0..")
@run_options
@jobs_option
@click.option("--minutes", type=click.FloatRange(min=0), metavar="M", help="Stop after M minutes.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(".soak"),
              show_default=True, help="Directory for the results.")  # fmt: skip
@json_option
def soak(
    seeds: Seeds, plan: RunPlan, workers: int, minutes: float | None, folder: Path, as_json: bool
) -> None:
    """Run many seeds and store which have been run; a second call resumes.

    Violations are printed as they are found. Stored results are only valid for the same code: after a change
    all seeds are run again.

    \b
    konvene sim soak --groups classic,static,mixed
    konvene sim soak --seeds 0..99999 --minutes 60
    """
    from konvene.sim.runs.parallel import run_many
    from konvene.sim.runs.soak import CompletedRuns

    try:
        done = CompletedRuns(folder)
    except (OSError, ValueError, KeyError) as error:
        fail(f"cannot read the results in {folder}: {error}", "Remove the directory to start again.")
    before = len(done.rows)
    if before:
        note(f"Resuming after {counted(before, 'run')}, in {done.path}")
    began = reported = time.monotonic()
    runs, exit_code = 0, 0
    end = began + minutes * 60 if minutes is not None else None
    jobs = done.remaining(plan.jobs(seeds))
    in_time = jobs if end is None else itertools.takewhile(lambda job: time.monotonic() < end, jobs)
    try:
        for job, result in run_many(in_time, workers=workers):
            row = done.add(job, result)
            runs += 1
            if row.get("violation") or "lost" in row:
                exit_code = 1
                for line in failure_line(job, result):
                    note(line)
            if time.monotonic() - reported >= REPORT_INTERVAL_S:
                reported = time.monotonic()
                note(f"{counted(runs, 'run')} in {lasting(reported - began)}, now at seed {job.run.seed}")
    except KeyboardInterrupt:
        note("interrupted; the same command resumes from here")
    finally:
        done.close()
    _print_summary(_summary(list(done.rows.values()), runs), as_json)
    raise click.exceptions.Exit(exit_code)


def _summary(rows: list[dict[str, Any]], runs: int) -> dict[str, object]:
    found = [row for row in rows if row.get("violation") or "lost" in row]
    return {
        "runs": len(rows),
        "runs_now": runs,
        "steps": sum(row.get("steps", 0) for row in rows),
        "simulated_s": round(sum(row.get("simulated_s", 0.0) for row in rows), 3),
        "wall_s": round(sum(row.get("wall_s", 0.0) for row in rows), 3),
        "found": sorted(found, key=lambda row: (row["seed"], row["groups"])),
    }


def _print_summary(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    click.echo(
        f"{counted(summary['runs'], 'run')}, {summary['runs_now']:,} of them now: "
        f"{counted(summary['steps'], 'step')},"
        f" {lasting(summary['simulated_s'])} simulated in {lasting(summary['wall_s'])} of processor time."
    )
    for row in summary["found"]:
        found = row.get("violation")
        what = f"{found['invariant']}: {found['why']}" if found else row["lost"].splitlines()[-1]
        click.echo(f"seed {row['seed']}, {row['groups']}: {what[:300]}")
        click.echo(f"    {row['command']}")
    if not summary["found"]:
        click.echo("All invariants held.")
