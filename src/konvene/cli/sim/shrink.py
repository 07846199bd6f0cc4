"""`konvene sim shrink`: reduce a seed that violates an invariant to a minimal reproduction."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import note, print_json
from konvene.cli.sim.options import RunPlan, run_options


@click.command()
@click.argument("seed", type=click.IntRange(0))
@run_options
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False, writable=True),
              metavar="FILE.txt", help="File for the scenario [default: standard output].")  # fmt: skip
@json_option
def shrink(seed: int, plan: RunPlan, output: Path | None, as_json: bool) -> None:
    """Shrink a run with a violation to fewer steps and faults, and write a scenario file if possible.

    \b
    konvene sim shrink 7 -o lost-commit.txt
    """
    from konvene.sim.runs.parallel import quiet
    from konvene.sim.runs.shrink import NothingToShrink
    from konvene.sim.runs.shrink import shrink as shrink_run

    job = plan.only(seed)
    if job.level != 1:
        raise click.UsageError("--level 2: only runs of level 1 can be shrunk.")
    try:
        with quiet():
            found = shrink_run(job.run, note if sys.stderr.isatty() else lambda line: None)
    except NothingToShrink as nothing:
        fail(str(nothing), "`konvene sim run --seeds 0.. --until-violation` looks for a violation.")
    if output is not None:
        if found.scenario is None:
            note(
                f"{output} is not written: the violation needs more than a conversation with one coordinator."
            )
        else:
            try:
                output.write_text(found.scenario, encoding="utf-8")
            except OSError as error:
                fail(f"{output}: {error.strerror}")
            note(f"written to {output}; `konvene sim scenario {output}` plays it")
    if as_json:
        print_json(found.as_dict())
    else:
        for line in found.lines():
            click.echo(line)
