"""In which order Kafka's sticky assignor has members and processes.

Many answers of that assignor are equally good. Which one it gives follows from the order of Java's hash maps
and of its priority queue (`sticky_queue`), and both are fixed by the names of members and processes. We have
things in the same order, so that two brokers that are told the same answer the same. No rule depends on this
file.

A hash map has its keys by hash, modulo the size of a table: a power of two that doubles when the table is
three quarters full. Keys in one place of the table stand as they came, or the other way round if each was
computed when it was found to be absent.

Not followed: a place of the table with more than seven keys, of which Java makes a tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import mul
from typing import Final

__all__ = ["computed", "hashed"]

DEFAULT_CAPACITY: Final = 16
"""The initial size of a Java HashMap without an expected number of keys."""
POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(127, -1, -1))
"""What the last units of a string are multiplied with in its hash; the very last one with 1."""


def hashed(names: Sequence[str]) -> list[str]:
    """The keys of a map into which these different names were put, one after another."""
    size = DEFAULT_CAPACITY
    while len(names) > size * 3 // 4:
        size *= 2
    return _by_place(names, size)


def computed(names: Sequence[str]) -> list[str]:
    """The keys of a map, made for as many as there are names, in which each name was computed if absent.

    Such a map looks whether it is too full before a key comes, not after.
    """
    size = 1
    while size < len(names):
        size *= 2
    known: dict[str, None] = {}
    for name in names:
        if len(known) > size * 3 // 4:
            size *= 2
        known[name] = None
    return _by_place(reversed(known), size)


def _by_place(names: Iterable[str], size: int) -> list[str]:
    return sorted(names, key=lambda name: _spread(name) & size - 1)


@lru_cache(maxsize=1 << 16)
def _spread(text: str) -> int:
    """`String.hashCode`, its upper half mixed into the lower one. Java's strings keep theirs as well."""
    code = 0
    if text.isascii():
        units: Sequence[int] = text.encode()
    else:
        units = [unit for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))]
    for start in range(0, len(units), len(POWERS)):
        part = units[start : start + len(POWERS)]
        code = code * pow(31, len(part), 1 << 32) + sum(map(mul, part, POWERS[-len(part) :]))
    code &= 0xFFFFFFFF
    return code ^ code >> 16
