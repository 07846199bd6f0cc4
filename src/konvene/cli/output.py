"""How commands show what they found: tables for people, one JSON document for programs. The only place.

A `Table` is columns and rows of values; it prints as Kafka's tools print theirs (left-aligned, upper-case
heads, `-` for what is not there), padded to its content. JSON has snake_case keys and null for what is not
there. What is not data (notes, progress) goes to standard error, so that pipes get data only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

__all__ = [
    "MISSING",
    "Progress",
    "Table",
    "iso",
    "note",
    "print_json",
    "print_json_line",
    "print_tables",
    "text_of",
]

MISSING = "-"


class Table(NamedTuple):
    """Column heads as Kafka writes them (`LOG-END-OFFSET`), and a value per column in each row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    """Said on standard error before the table, such as that a group has no active members."""
    details: Sequence[Sequence[str]] = ()
    """Lines under each row, where a row needs sentences."""

    def lines(self) -> list[str]:
        """The table as text, heads first, without the details."""
        cells = [[text_of(value) for value in row] for row in self.rows]
        widths = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(self.columns)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [list(self.columns), *cells]
        ]


def text_of(value: Any) -> str:
    """A value as a cell shows it; control characters are escaped, so that a name cannot move the cursor."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def print_tables(tables: Iterable[Table]) -> None:
    """Tables one under the other, an empty line between them; their notes go to standard error."""
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
            for i, line in enumerate(rows):
                click.echo(line)
                for sentence in table.details[i] if table.details else ():
                    click.echo(f"    {text_of(sentence)}")


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=_plain))


def print_json_line(document: Mapping[str, Any], *, ascii_only: bool = False) -> None:
    """One document on a line of its own, where there is one for each of many things.

    `ascii_only` escapes all other characters: so it can also show text that no encoding has."""
    escaped = ascii_only or sys.stdout.encoding.lower().replace("-", "") != "utf8"
    text = json.dumps(document, ensure_ascii=escaped, separators=(",", ":"), default=_plain)
    sys.stdout.write(text + "\n")


class Progress:
    """How far long work has come, as one line of standard error that overwrites itself.

    Only where a person looks on: standard error is a terminal, and standard output is not scrolling there."""

    def __init__(self, total: int, *, unit: str = "", beside_output: bool = False) -> None:
        """`total` are bytes, unless a `unit` says what."""
        self.total = total
        self.done = 0
        self._unit = unit
        self._shown = sys.stderr.isatty() and (beside_output or not sys.stdout.isatty())
        self._next_at = time.monotonic() + 1
        self._width = 0

    def add(self, count: int, what: str = "") -> None:
        """So many more are done."""
        self.done += count
        if self._shown and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + 0.2
            percent = 100 * self.done // max(self.total, 1)
            whole = f"{self.total} {self._unit}" if self._unit else f"{self.total >> 20} MiB"
            line = f"{percent}% of {whole}  {text_of(what)}"[:79]
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def note(text: str) -> None:
    """Something for the person at the terminal that is not data."""
    click.echo(text_of(text), err=True)


def iso(ms: int) -> str | None:
    """A time of the log as UTC with milliseconds; None for the -1 that means unknown."""
    if ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"{type(value).__name__} has no place in JSON")
