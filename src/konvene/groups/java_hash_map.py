"""The iteration order of Java's HashMap, by which Kafka breaks ties.

Several results may be equally good: assignments of the sticky task assignor, protocols of a classic group, or
partition counts of repartition topics. Which of them Kafka returns depends on the iteration order of Java's
hash maps, which follows from ids and names. With the same order both brokers return the same results.

A HashMap iterates its buckets in order. A key's bucket is its spread hash modulo the table size, a power of
two that doubles when the table is three quarters full. Within a bucket keys keep their insertion order, or
the reverse if they were added by `computeIfAbsent`.

Not reproduced: buckets with more than seven keys, which Java turns into trees.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from operator import mul
from typing import Final

__all__ = ["compute_if_absent_order", "hash_map_order"]

DEFAULT_CAPACITY: Final = 16
"""The initial size of a Java HashMap without an expected number of keys."""
POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(127, -1, -1))
"""Factors of the last code units of a string in its hash; that of the last one is 1."""
LONGEST_CACHED_NAME: Final = 256
"""Length of the longest names whose hashes are cached: at most 16 MB of names."""


def hash_map_order(names: Collection[str]) -> list[str]:
    """Return the keys of a HashMap in iteration order, after `put` of these distinct names in sequence."""
    size = DEFAULT_CAPACITY
    while len(names) > size * 3 // 4:
        size *= 2
    return _by_bucket(names, size)


def compute_if_absent_order(names: Sequence[str]) -> list[str]:
    """Return the keys of a HashMap in iteration order, after `computeIfAbsent` of each name.

    The map was created with the number of names as capacity. `computeIfAbsent` resizes before it adds a key,
    not after.
    """
    size = 1
    while size < len(names):
        size *= 2
    known: dict[str, None] = {}
    for name in names:
        if len(known) > size * 3 // 4:
            size *= 2
        known[name] = None
    return _by_bucket(reversed(known), size)


def _by_bucket(names: Iterable[str], size: int) -> list[str]:
    return sorted(names, key=lambda name: _hash_of(name) & size - 1)


def _hash_of(name: str) -> int:
    """Return `_spread_hash(name)`, from a cache unless the name is long.

    Clients may choose long names, which would fill the cache's memory."""
    return _cached_hash(name) if len(name) <= LONGEST_CACHED_NAME else _spread_hash(name)


def _spread_hash(text: str) -> int:
    """Return `String.hashCode` with its upper half mixed into the lower one, as HashMap does."""
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


_cached_hash = lru_cache(maxsize=1 << 16)(_spread_hash)
