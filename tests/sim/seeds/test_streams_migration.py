"""Applications that move between the classic and the streams protocol uphold every invariant, under the
faults of each seed."""

from __future__ import annotations

import pytest
from tests import depth
from tests.sim.seeds.playing import assert_invariants_hold


@pytest.mark.parametrize("seed", range(depth.times(25, soaked=50)))
def test_every_invariant_holds(seed: int) -> None:
    assert_invariants_hold(seed, "streams-migration")
