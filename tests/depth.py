"""How many seeds, kills and generated examples tests run: fewer with `--quick`, more with `--soak`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

QUICK_EXAMPLES, EXAMPLES, SOAK_EXAMPLES = 20, 50, 100
"""Generated examples of a property where the test names no number."""

quick = False
soak = False
"""Both are set by `tests.conftest` before the tests are collected."""


def times(usual: T, soaked: T) -> T:
    """Return how often to repeat a random trial: for every change, or with `--soak`."""
    return soaked if soak else usual


def seeds(count: int) -> int:
    """Return how many of a test's `count` seeds to run: with `--quick` a tenth, and at least three."""
    return max(3, count // 10) if quick else count


def examples(count: int) -> int:
    """Return how many of `count` generated examples to run: with `--quick` a fifth, and at least two."""
    return max(2, count // 5) if quick else count
