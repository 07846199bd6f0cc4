"""Output of commands: tables for people and one JSON document for programs.

A `Table` prints like the tables of Kafka's tools: left-aligned, upper-case heads, `-` for a missing value,
padded to its content. JSON has snake_case keys, and null for a missing value. Notes and progress go to
standard error, so that a pipe receives data only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple

import click

__all__ = [
    "MISSING",
    "Progress",
    "Table",
    "iso",
    "note",
    "print_json",
    "print_json_line",
    "print_more_rows",
    "print_tables",
    "text_of",
]

MISSING = "-"


class Table(NamedTuple):
    """A table to print: column heads as in Kafka's tools (`LOG-END-OFFSET`), and rows with their values."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = ()
    """Lines for standard error, printed before the table."""
    details: Sequence[Sequence[str]] = ()
    """Lines to print below each row."""

    def lines(self, at_least: Sequence[int] = ()) -> list[str]:
        """Return the lines of the table as text, the column heads first, without the lines in `details`.

        `at_least` are minimum widths of the columns."""
        cells = [[text_of(value) for value in row] for row in [self.columns, *self.rows]]
        widths = [max(pair) for pair in zip_longest(self.widths(), at_least, fillvalue=0)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]

    def widths(self) -> list[int]:
        """Return the width of each column."""
        return [
            max(len(text_of(value)) for value in column)
            for column in zip(self.columns, *self.rows, strict=True)
        ]


def text_of(value: object) -> str:
    """Format a value for a cell. Control characters are escaped, so that a name cannot move the cursor."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables, separated by empty lines, and their notes to standard error."""
    first = True
    for table in tables:
        if not first:
            click.echo()
        first = False
        for each in table.notes:
            note(each)
        if table.columns:
            head, *rows = table.lines()
            click.echo(click.style(head, bold=True))
            _print_rows(table, rows)


def print_more_rows(table: Table, at_least: Sequence[int]) -> None:
    """Print a table without its column heads, below one whose columns have the widths `at_least`."""
    for each in table.notes:
        note(each)
    _print_rows(table, table.lines(at_least)[1:])


def _print_rows(table: Table, lines: Sequence[str]) -> None:
    for i, line in enumerate(lines):
        click.echo(line)
        for detail in table.details[i] if table.details else ():
            click.echo(f"    {text_of(detail)}")


def print_json(document: Mapping[str, object] | Sequence[object]) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=_plain))


def print_json_line(document: Mapping[str, object], *, ascii_only: bool = False) -> None:
    """Print one document on one line (JSON Lines).

    `ascii_only` escapes every character that is not ASCII, even if the encoding of the output has it."""
    escaped = ascii_only or sys.stdout.encoding.lower().replace("-", "") != "utf8"
    text = json.dumps(document, ensure_ascii=escaped, separators=(",", ":"), default=_plain)
    sys.stdout.write(text + "\n")


class Progress:
    """A progress line on standard error that overwrites itself.

    It is shown only if standard error is a terminal and standard output is not; with `beside_output` also if
    both are."""

    def __init__(self, total: int, *, unit: str = "", beside_output: bool = False) -> None:
        """Show progress towards `total`, which is in bytes unless `unit` names another unit."""
        self.total = total
        self.done = 0
        self._unit = unit
        self._shown = sys.stderr.isatty() and (beside_output or not sys.stdout.isatty())
        self._next_at = time.monotonic() + 1
        self._width = 0

    def add(self, count: int, what: str = "") -> None:
        """Add `count` to the amount done; `what` is the item in progress, to be shown."""
        self.done += count
        if self._shown and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + 0.2
            percent = 100 * self.done // max(self.total, 1)
            total = f"{self.total} {self._unit}" if self._unit else f"{self.total >> 20} MiB"
            line = f"{percent}% of {total}  {text_of(what)}"[:79]
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Erase the progress line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def note(text: str) -> None:
    """Print a line to standard error, for people: it is no part of the command's data."""
    click.echo(text_of(text), err=True)


def iso(ms: int) -> str | None:
    """Format a timestamp in ms as UTC with milliseconds; None for -1, which means unknown."""
    if ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
