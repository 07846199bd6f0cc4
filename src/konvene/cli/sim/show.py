"""Output of `konvene sim`: results of runs, then tables of counts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from konvene.cli.output import Table, print_tables
from konvene.plurals import counted

if TYPE_CHECKING:
    from konvene.sim.runs.parallel import Job, Lost, Result, Totals

__all__ = ["failure_line", "lasting", "print_one", "print_totals", "violation_lines"]

WIDTH = 110
MAX_LINE = 160


def lasting(seconds: float) -> str:
    """Format a duration with its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])


# --- one run -------------------------------------------------------------------------------------


def print_one(result: Result) -> None:
    """Print the parameters, the counts and the violation of one run."""
    for line in _head(result):
        click.echo(line)
    for name, values in (("Drawn", _drawn(result)),):
        if values:
            text = f"{name}: {' '.join(values)}"
            click.echo(textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    click.echo()
    print_tables(_count_tables(result.counts))
    click.echo()
    if result.violation is None:
        click.echo("All invariants held.")
    else:
        for line in violation_lines(result.violation):
            click.echo(line)


def _head(result: Result) -> Iterable[str]:
    wall_s = max(result.wall_s, 1e-9)
    yield (
        f"Seed {result.seed}, {result.groups}: {counted(result.steps, 'step')},"
        f" {lasting(result.simulated_s)} simulated in {result.wall_s:.2f} s"
        f" ({result.steps / wall_s:.0f} steps/s, {result.simulated_s / wall_s:.0f} times real time)."
    )
    every = result.document.get("look_every")
    if every:
        yield (
            f"Checking invariants took {result.checking_s / wall_s:.0%} of the time: each event checks the"
            f" changed groups, every {every}th event the whole shard."
        )


def _drawn(result: Result) -> list[str]:
    if "options" in result.document:
        return list(result.document["options"])
    return [f"{name}={value}" for name, value in result.document.get("knobs", {}).items()]


def violation_lines(found: Mapping[str, Any]) -> list[str]:
    """Return lines about `found`, the JSON document of a violation: the invariant, the events before it and
    the commands to reproduce it."""
    where = "" if found["step"] is None else f" at step {found['step']}"
    command = found["command"]
    lines = [f"{found['invariant']} was violated{where}: {found['why']}", "", "Events before it:"]
    lines += [f"  {shortened(entry)}" for entry in found["recent"]]
    lines += ["", f"Run it again: {command}"]
    if " --level 2 " not in command:
        lines.append(f"Shrink it:    {command.replace('sim run --seed', 'sim shrink')}")
    return lines


def shortened(line: str) -> str:
    """Truncate a line of events for the terminal; `replay` and JSON have all of it."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


# --- counts --------------------------------------------------------------------------------------


def _count_tables(counts: Mapping[str, int]) -> list[Table]:
    """Return tables of the counts: responses by API and error, state changes, faults, and other events."""
    responses, states, faults, others = [], [], [], []
    for key, count in sorted(counts.items()):
        first, _, rest = key.partition(" ")
        if first == "state":
            states.append((rest, count))
        elif first == "fault":
            faults.append((rest, count))
        elif rest and first[0].isupper():
            responses.append((first, rest, count))
        else:
            others.append((key, count))
    tables = [
        Table(("API", "RESPONSE", "COUNT"), responses),
        Table(("STATE", "CHANGES"), states),
        Table(("FAULT", "COUNT"), faults),
        Table(("EVENT", "COUNT"), others),
    ]
    return [table for table in tables if table.rows]


# --- many runs -----------------------------------------------------------------------------------


def failure_line(job: Job, result: Result | Lost) -> list[str]:
    """Return lines about a run that violated an invariant or has no result, with the command to repeat it;
    none for any other run."""
    from konvene.sim.runs.parallel import Lost

    if isinstance(result, Lost):
        why = result.why.splitlines()
        head = f"seed {job.run.seed}, {job.groups}: no result: {why[-1]}"
        return [head, *(f"    {line}" for line in why[:-1]), f"    {job.command()}"]
    found = result.violation
    if found is None:
        return []
    where = "" if found["step"] is None else f", step {found['step']}"
    text = f"seed {job.run.seed}, {job.groups}{where}: {found['invariant']}: {found['why']}"
    return [textwrap.shorten(text, 300, placeholder=" …"), f"    {found['command']}"]


def print_totals(totals: Mapping[str, Totals], took_s: float, *, workers: int) -> None:
    """Print a row for each group type, the counts of all runs, and the elapsed time."""
    columns = (
        "GROUPS", "RUNS", "VIOLATIONS", "LOST", "STEPS", "SIMULATED", "STEPS/S", "TIMES-REAL-TIME",
        "INVARIANTS",
    )  # fmt: skip
    rows = []
    counts: dict[str, int] = {}
    for groups, t in totals.items():
        wall_s = max(t.wall_s, 1e-9)
        rows.append(
            (groups, t.runs, t.violations, t.lost, t.steps, lasting(t.simulated_s), round(t.steps / wall_s),
             round(t.simulated_s / wall_s), f"{t.checking_s / wall_s:.0%}")
        )  # fmt: skip
        for name, count in t.counts.items():
            counts[name] = counts.get(name, 0) + count
    print_tables([Table(columns, rows), *_count_tables(counts)])
    click.echo()
    runs = sum(t.runs for t in totals.values())
    processes = counted(workers, "process")
    click.echo(f"{counted(runs, 'run')} in {lasting(took_s)}, in {processes}; STEPS/S is per process.")
