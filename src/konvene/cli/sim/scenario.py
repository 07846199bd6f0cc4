"""`konvene sim scenario`: conversations with a coordinator as text, played.

A scenario file has commands and what followed from them. Playing it writes anew what follows; where that is
not what the file says, the difference is shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from konvene.cli.options import fail, json_option
from konvene.cli.output import print_json

DIFFERENT = 1


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.txt..."
)
@click.option("--write", is_flag=True, help="Write what happened into the file.")
@json_option
def scenario(files: Sequence[Path], write: bool, as_json: bool) -> None:
    """Play scenario files, and show where something else happens than they say.

    \b
    konvene sim scenario tests/scenarios/*.txt
    """
    rows = []
    for file in files:
        expected = _read(file)
        told = _played(file, expected)
        rows.append({"file": str(file), "different": told != expected, "text": told})
        if told != expected:
            if write:
                file.write_text(told, encoding="utf-8")
            if not as_json:
                _show(file, expected, told)
    different = [row for row in rows if row["different"]]
    if as_json:
        print_json(rows)
    else:
        written = " and written" if write else ""
        click.echo(f"{len(rows)} played, {len(different)} different{written if different else ''}.")
    if different and not write:
        raise click.exceptions.Exit(DIFFERENT)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{file} is no text")


def _played(file: Path, text: str) -> str:
    from konvene.sim.runs.parallel import quiet
    from konvene.sim.transcript.scenario import ScenarioError, run_file

    try:
        with quiet():
            return run_file(text)
    except ScenarioError as error:
        fail(f"{file}: {error}", "docs/scenarios.md describes the commands.")


def _show(file: Path, expected: str, told: str) -> None:
    lines = difflib.unified_diff(
        expected.splitlines(), told.splitlines(), f"{file} as it is", f"{file} as it happens", lineterm=""
    )
    for line in lines:
        click.echo(line)
