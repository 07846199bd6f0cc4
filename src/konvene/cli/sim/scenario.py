"""`konvene sim scenario`: play transcripts of conversations with a coordinator.

A scenario file contains commands and their results. Playing it computes the results anew and shows the
differences to the file.
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
@click.option("--write", is_flag=True, help="Update the files with the new results.")
@json_option
def scenario(files: Sequence[Path], write: bool, as_json: bool) -> None:
    """Play scenario files and show differences from their expected results.

    \b
    konvene sim scenario tests/scenarios/*.txt
    """
    rows = []
    for file in files:
        expected = _read(file)
        actual = _play(file, expected)
        rows.append({"file": str(file), "different": actual != expected, "text": actual})
        if actual != expected:
            if write:
                file.write_text(actual, encoding="utf-8")
            if not as_json:
                _show(file, expected, actual)
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
        fail(f"{file} is not a UTF-8 text file")


def _play(file: Path, text: str) -> str:
    from konvene.sim.runs.parallel import quiet
    from konvene.sim.transcript.scenario import ScenarioError, run_file

    try:
        with quiet():
            return run_file(text)
    except ScenarioError as error:
        fail(f"{file}: {error}", "docs/scenarios.md describes the commands.")


def _show(file: Path, expected: str, actual: str) -> None:
    lines = difflib.unified_diff(
        expected.splitlines(), actual.splitlines(), f"{file} expected", f"{file} actual", lineterm=""
    )
    for line in lines:
        click.echo(line)
