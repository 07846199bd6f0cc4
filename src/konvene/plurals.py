"""Counts with their nouns, in the singular or plural, for all text that people read."""

from __future__ import annotations

import re

__all__ = ["counted", "plural"]


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 partition`, `1,204 partitions`."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the noun as it follows the count: `entry` for 1, `entries` otherwise."""
    if count == 1:
        return noun
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search(r"(s|x|ch|sh)$", noun) else f"{noun}s"
