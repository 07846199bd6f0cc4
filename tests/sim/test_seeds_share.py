"""Members of share groups (KIP-932) under the faults of each seed keep every promise: fewer steps, and fewer
seeds, since each step is looked at record by record."""

from __future__ import annotations

import pytest

from konvene.sim.many import quiet
from konvene.sim.run import Run, simulate


@pytest.mark.parametrize("seed", range(25))
def test_every_promise_is_kept(seed: int) -> None:
    with quiet():
        report = simulate(Run(seed, ("share",), 3_000))
    assert report.violation is None, "\n".join(report.violation.lines())
    assert report.counts["acquired"] > 50, "hardly anything happened"
