"""How many seeds and generated examples tests run: all of them, or fewer with `--quick`."""

from __future__ import annotations

QUICK_EXAMPLES = 20
"""Generated examples of a property with `--quick`, where the test names no number."""

quick = False
"""Set by `tests.conftest` before the tests are collected."""


def seeds(count: int) -> int:
    """Return how many of a test's `count` seeds to run: with `--quick` a tenth, and at least three."""
    return max(3, count // 10) if quick else count


def examples(count: int) -> int:
    """Return how many of `count` generated examples to run: with `--quick` a fifth, and at least two."""
    return max(2, count // 5) if quick else count
