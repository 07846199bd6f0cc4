"""Members of both protocols in one group uphold every invariant, under the faults of each seed."""

from __future__ import annotations

from random import Random

from tests.sim.seeds.playing import assert_invariants_hold, each_seed

from konvene.sim.world.faults import Options
from konvene.sim.world.world import World


@each_seed
def test_every_invariant_holds(seed: int) -> None:
    assert_invariants_hold(seed, "migration")


def test_restarted_member_has_a_new_member_id() -> None:
    """A reused id would be taken for the previous process, whose assignment a group may still have."""
    world = World(Random(7), Options.without_faults().with_set([("upgraded", "1")]), kinds=("migration",))
    world.new_member()
    ids = []
    for _ in range(3):
        world.restart_member(world.members[0])
        ids.append(world.members[0].member_id)
        world.members[0].die()
    assert len(set(ids)) == 3, ids
