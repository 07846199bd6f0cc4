"""The seeds that every change has to pass, for each kind of group; each seed is a test.

Each kind has its own file, which lets parallel test workers share the kinds. `make sim` runs a hundred seeds
of each kind, as these tests do with `--soak`. The first forty find all but four of 188 planted bugs
(`tests/mutation`) of classic and consumer groups.
"""

from __future__ import annotations

import pytest
from tests import depth

from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate

SEEDS = range(depth.times(40, soaked=100))
STEPS = 5_000

each_seed = pytest.mark.parametrize("seed", SEEDS)


def assert_invariants_hold(seed: int, *kinds: str) -> None:
    """Simulate the seed; a failure shows the last events and the command that repeats the run."""
    with quiet():
        report = simulate(Run(seed, kinds, STEPS))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.steps >= STEPS * 0.8
    assert report.counts["request"] > 100, "the run has too few requests"
