"""Members of streams groups (KIP-1071) under the faults of each seed uphold every invariant."""

from __future__ import annotations

from tests.sim.seeds.playing import assert_invariants_hold, each_seed


@each_seed
def test_every_invariant_holds(seed: int) -> None:
    assert_invariants_hold(seed, "streams")
