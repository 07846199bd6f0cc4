"""`konvene sim scenario`: play transcripts of conversations with a coordinator.

A scenario file contains commands and their results. Playing it computes the results anew and shows the
differences to the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from konvene.cli.options import Failure, json_option
from konvene.cli.output import print_json

DIFFERENT = 1


class Played(NamedTuple):
    """A scenario file with its expected and actual text, or the error that ended it."""

    file: Path
    expected: str = ""
    actual: str = ""
    error: Failure | None = None

    @property
    def different(self) -> bool:
        return self.error is None and self.actual != self.expected

    def as_dict(self) -> dict[str, object]:
        """Return the result as a document for JSON."""
        document: dict[str, object] = {"file": str(self.file), "different": self.different}
        return document | ({"text": self.actual} if self.error is None else {"error": str(self.error)})


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE.txt|DIR...")
@click.option("--write", is_flag=True, help="Update the files with the new results.")
@json_option
def scenario(paths: Sequence[Path], write: bool, as_json: bool) -> None:
    """Play scenario files and show differences from their expected results.

    A directory stands for all .txt files in it and in its subdirectories. The exit code is 1 if a file is
    different or cannot be played.

    \b
    konvene sim scenario tests/scenarios
    konvene sim scenario tests/scenarios/classic/join.txt --write
    """
    rows = []
    for file in _files(paths):
        played = _play(file)
        rows.append(played)
        if played.error is not None:
            played.error.show()
        elif played.different:
            if write:
                file.write_text(played.actual, encoding="utf-8")
            if not as_json:
                _show(played)
    different = sum(played.different for played in rows)
    failed = sum(played.error is not None for played in rows)
    if as_json:
        print_json([played.as_dict() for played in rows])
    else:
        written = " and written" if write and different else ""
        not_played = f", {failed} not playable" if failed else ""
        click.echo(f"{len(rows) - failed} played, {different} different{written}{not_played}.")
    if failed or (different and not write):
        raise click.exceptions.Exit(DIFFERENT)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, and the scenario files of the directories, each sorted. Raises UsageError."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.rglob("*.txt"))
        if not found:
            raise click.UsageError(f"{path} has no scenario files (*.txt).")
        yield from found


def _play(file: Path) -> Played:
    from konvene.sim.runs.parallel import quiet
    from konvene.sim.transcript.scenario import ScenarioError, run_file

    try:
        expected = file.read_text("utf-8")
        with quiet():
            return Played(file, expected, run_file(expected))
    except OSError as error:
        return Played(file, error=Failure(f"{file}: {error.strerror}"))
    except UnicodeDecodeError:
        return Played(file, error=Failure(f"{file} is not a UTF-8 text file"))
    except ScenarioError as error:
        return Played(file, error=Failure(f"{file}: {error}", "docs/scenarios.md describes the commands."))


def _show(played: Played) -> None:
    expected, actual = played.expected.splitlines(), played.actual.splitlines()
    file = played.file
    lines = difflib.unified_diff(expected, actual, f"{file} expected", f"{file} actual", lineterm="")
    for line in lines:
        click.echo(line)
