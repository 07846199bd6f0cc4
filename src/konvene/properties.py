r"""Parser of Java's `.properties` files, as `java.util.Properties` reads them.

A line is blank, a comment (its first character is `#` or `!`), or a key and a value separated by `=`, `:` or
white space. A line that ends in an odd number of backslashes continues on the next line, whose leading white
space is dropped; comments do not continue. A backslash escapes `\t \n \r \f` and `\uXXXX`; any other escaped
character stands for itself. Trailing white space belongs to the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Entry", "UnreadableProperties", "parse_properties", "properties_mapping"]

BLANK: Final = " \t\f"
NEWLINE: Final = r"\r\n|\r|\n"
ESCAPE: Final = r"\\(u[0-9A-Fa-f]{4}|.|$)"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class UnreadableProperties(ValueError):
    """Text that is not a properties file; the message names file and line."""


class Entry(NamedTuple):
    """A key, its value, and its location in the file, such as `server.properties:12` (lines count from 1)."""

    key: str
    value: str
    where: str


def parse_properties(text: str, file: str = "server.properties") -> tuple[Entry, ...]:
    """Return all entries in order, repeated keys included. Raises `UnreadableProperties`."""
    return tuple(_entry(logical, line, file) for logical, line in _logical_lines(text))


def properties_mapping(text: str, file: str) -> dict[str, str]:
    """Return the last value of each key. Raises `UnreadableProperties`."""
    return {entry.key: entry.value for entry in parse_properties(text, file)}


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each logical line that is no comment, continuations joined, and the number of its first line."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(re.split(NEWLINE, text), 1):
        line = natural.lstrip(BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        if _continues(line):
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line]), start
        parts = []
    if parts and "".join(parts):
        yield "".join(parts), start


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: str, number: int, file: str) -> Entry:
    """Split a logical line at the first separator that is not escaped."""
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
    # Two escapes may be the surrogates of one character.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escaped: str, where: str) -> str:
    if escaped[0] != "u":
        return ESCAPES.get(escaped, escaped)
    if len(escaped) != 5:
        raise UnreadableProperties(f"{where}: \\u must be followed by four hexadecimal digits")
    return chr(int(escaped[1:], 16))
