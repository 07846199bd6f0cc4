"""Applications that move between the protocols in the simulator: what its members of the classic one do."""

from __future__ import annotations

from random import Random

import pytest

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.invariants import invariants_of
from konvene.sim.invariants.liveness import check_liveness
from konvene.sim.members.streams.classic import ClassicApplication
from konvene.sim.members.streams.member import StreamsMember
from konvene.sim.runs.run import Run, simulate
from konvene.sim.world.faults import Options
from konvene.sim.world.world import World

KIND = "streams-migration"


def world(**sets: str) -> World:
    """Return a world with the given faults only."""
    options = {"streams.mode": "kip", "standbys": "1", "members": "4", **sets}
    options = Options.without_faults().with_set(
        [(name.replace("_", "."), value) for name, value in options.items()]
    )
    found = World(Random(7), options, kinds=(KIND,), invariants=invariants_of((KIND,)))
    found.begin()
    return found


def actives(there: World) -> list[str]:
    return sorted(str(task) for m in there.live_members() for task in m.tasks.active)  # type: ignore[attr-defined]


@pytest.mark.parametrize("topology", ["stateless", "stateful", "chain", "two", "joined"])
def test_a_leader_gives_every_task_to_one_member(topology: str) -> None:
    there = world(topology=topology, streams_upgraded="0")
    there.run_for(120_000)
    group = there.runtime.core.groups["g1"]
    assert isinstance(group, ClassicGroup)
    assert all(isinstance(m, ClassicApplication) and m.state == "in" for m in there.live_members()), (
        there.live_members()
    )
    assert len(actives(there)) == len(set(actives(there))) > 0
    check_liveness(there)


def test_a_rolling_upgrade_and_the_way_back_keep_every_task() -> None:
    """Process by process to the streams protocol, then back; the tasks are the same ones at each end."""
    there = world(streams_upgraded="0")
    there.run_for(60_000)
    before, seen = actives(there), []
    for share, kind in ((1.0, StreamsGroup), (0.0, ClassicGroup)):
        there.upgraded["g1"] = share
        for member in list(there.members):
            member.leave()
            there.restart_member(member)
            there.run_for(60_000)
            seen.append(type(there.runtime.core.groups["g1"]).__name__)
        assert isinstance(there.runtime.core.groups["g1"], kind), seen
        assert actives(there) == before
    assert seen == ["StreamsGroup"] * 7 + ["ClassicGroup"], seen
    assert (there.counts["became StreamsGroup"], there.counts["became ClassicGroup"]) == (1, 1)


def test_who_comes_back_with_the_other_protocol_has_its_process_and_its_name() -> None:
    there = world(streams_upgraded="0", instances="1")
    there.run_for(30_000)
    old = there.members[0]
    there.upgraded["g1"] = 1.0
    old.die()
    there.restart_member(old)
    new = there.members[0]
    assert isinstance(old, ClassicApplication)
    assert isinstance(new, StreamsMember)
    assert (new.name, new.instance_id, new.process_id) == (old.name, old.instance_id, old.process_id)


@pytest.mark.deep
def test_runs_move_groups_both_ways() -> None:
    """Seeds that never move a group would invariant nothing."""
    counts = [simulate(Run(seed, (KIND,), 3_000)).counts for seed in range(12)]
    there = sum(found.get("became StreamsGroup", 0) for found in counts)
    back = sum(found.get("became ClassicGroup", 0) for found in counts)
    assert there >= 10, there
    assert back >= 10, back


def test_in_mode_kafka_no_group_moves() -> None:
    counts = [simulate(Run(seed, (KIND,), 1_000, (("streams.mode", "kafka"),))).counts for seed in range(4)]
    assert not any(name.startswith("became") for found in counts for name in found)
