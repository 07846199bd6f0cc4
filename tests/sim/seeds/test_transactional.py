"""Members that consume, transform and produce in transactions uphold every invariant under the faults of each
seed, in classic groups and in consumer groups."""

from __future__ import annotations

import pytest
from tests.sim.seeds.playing import assert_invariants_hold

from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate


@pytest.mark.parametrize("seed", range(50))
def test_every_invariant_holds(seed: int) -> None:
    assert_invariants_hold(seed, "transactional")


@pytest.mark.parametrize("seed", range(25))
def test_every_invariant_holds_in_consumer_groups(seed: int) -> None:
    """The consumer group runs have fewer steps and seeds."""
    with quiet():
        report = simulate(Run(seed, ("transactional-consumer",), 3_000))
    assert report.violation is None, "\n".join(report.violation.lines())
