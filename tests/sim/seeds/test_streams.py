"""Members of streams groups (KIP-1071) under the faults of each seed uphold every invariant."""

from __future__ import annotations

import pytest
from tests import depth
from tests.sim.seeds.playing import assert_invariants_hold


@pytest.mark.parametrize("seed", range(depth.times(25, soaked=100)))
def test_every_invariant_holds(seed: int) -> None:
    assert_invariants_hold(seed, "streams")
