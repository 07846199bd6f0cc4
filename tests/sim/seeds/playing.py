"""The seeds that every change has to pass: so many for each kind of group, each in a test of its own.

A kind has its file, so that two workers share the kinds between them. `make sim` runs the same seeds.
"""

from __future__ import annotations

import pytest

from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate

SEEDS = range(100)
STEPS = 5_000

each_seed = pytest.mark.parametrize("seed", SEEDS)


def assert_invariants_hold(seed: int, *kinds: str) -> None:
    """Run it, and fail with what came before and the command that runs it again."""
    with quiet():
        report = simulate(Run(seed, kinds, STEPS))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.steps >= STEPS * 0.8
    assert report.counts["request"] > 100, "hardly anything happened"
