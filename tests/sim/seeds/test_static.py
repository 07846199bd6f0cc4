"""Classic groups of static members, under the faults of each seed, keep every promise."""

from __future__ import annotations

from tests.sim.seeds.playing import assert_promises_are_kept, each_seed


@each_seed
def test_every_promise_is_kept(seed: int) -> None:
    assert_promises_are_kept(seed, "static")
