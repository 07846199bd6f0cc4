r"""Reader of Java's `.properties` text, as `java.util.Properties` reads it.

A line is a comment (first mark `#` or `!`), blank, or a key and a value parted by `=`, `:` or white
space. A line that ends in an odd number of backslashes goes on in the next, whose leading space is
dropped; a comment never goes on. In keys and values a backslash escapes: `\t \n \r \f`, `\uXXXX`,
and any other character stands for itself. Trailing space belongs to the value. The last value of a
key counts: the reader returns every entry with its place, and leaves that to its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from konvene.configs.errors import UnreadableProperties

__all__ = ["Entry", "read_properties"]

BLANK: Final = " \t\f"
NEWLINE: Final = r"\r\n|\r|\n"
ESCAPE: Final = r"\\(u[0-9A-Fa-f]{4}|.|$)"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """A key, its value, and its location, such as `server.properties:12` (lines count from 1)."""

    key: str
    value: str
    where: str


def read_properties(text: str, file: str = "server.properties") -> tuple[Entry, ...]:
    """All entries, in order. Raises UnreadableProperties, naming file and line."""
    return tuple(_entry(logical, line, file) for logical, line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with their continuations joined and comments left out."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(re.split(NEWLINE, text), 1):
        line = natural.lstrip(BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        if _goes_on(line):
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line]), start
        parts = []
    if parts and "".join(parts):
        yield "".join(parts), start


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: str, number: int, file: str) -> Entry:
    """Part a logical line at the first separator that is not escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANK)
    where = f"{file}:{number}"
    return Entry(_unescape(line[:end], where), _unescape(rest, where), where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    plain = re.sub(ESCAPE, lambda found: _character(found[1], where), text, flags=re.DOTALL)
    # Two escapes may spell one character beyond the first plane.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escaped: str, where: str) -> str:
    if escaped[0] != "u":
        return ESCAPES.get(escaped, escaped)
    if len(escaped) != 5:
        raise UnreadableProperties(f"{where}: \\u must be followed by four hexadecimal digits")
    return chr(int(escaped[1:], 16))
