"""Simulated applications migrate between the classic and the streams protocol."""

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


def begun_world(**sets: str) -> World:
    """Return a world with the given faults only."""
    options = {"streams.mode": "kip", "standbys": "1", "members": "4", **sets}
    options = Options.without_faults().with_set(
        [(name.replace("_", "."), value) for name, value in options.items()]
    )
    created = World(Random(7), options, kinds=(KIND,), invariants=invariants_of((KIND,)))
    created.begin()
    return created


def active_tasks(world: World) -> list[str]:
    return sorted(str(task) for m in world.live_members() for task in m.tasks.active)  # type: ignore[attr-defined]


@pytest.mark.parametrize("topology", ["stateless", "stateful", "chain", "two", "joined"])
def test_classic_leader_assigns_each_task_to_one_member(topology: str) -> None:
    world = begun_world(topology=topology, streams_upgraded="0")
    world.run_for(120_000)
    group = world.runtime.core.groups["g1"]
    assert isinstance(group, ClassicGroup)
    assert all(isinstance(m, ClassicApplication) and m.state == "in" for m in world.live_members()), (
        world.live_members()
    )
    assert len(active_tasks(world)) == len(set(active_tasks(world))) > 0
    check_liveness(world)


def test_rolling_upgrade_and_downgrade_keep_every_task() -> None:
    """Processes move one by one to the streams protocol, then back; the active tasks stay the same."""
    world = begun_world(streams_upgraded="0")
    world.run_for(60_000)
    before, seen = active_tasks(world), []
    for share, kind in ((1.0, StreamsGroup), (0.0, ClassicGroup)):
        world.upgraded["g1"] = share
        for member in list(world.members):
            member.leave()
            world.restart_member(member)
            world.run_for(60_000)
            seen.append(type(world.runtime.core.groups["g1"]).__name__)
        assert isinstance(world.runtime.core.groups["g1"], kind), seen
        assert active_tasks(world) == before
    assert seen == ["StreamsGroup"] * 7 + ["ClassicGroup"], seen
    assert (world.counts["became StreamsGroup"], world.counts["became ClassicGroup"]) == (1, 1)


def test_restart_with_the_other_protocol_keeps_process_and_instance_id() -> None:
    world = begun_world(streams_upgraded="0", instances="1")
    world.run_for(30_000)
    old = world.members[0]
    world.upgraded["g1"] = 1.0
    old.die()
    world.restart_member(old)
    new = world.members[0]
    assert isinstance(old, ClassicApplication)
    assert isinstance(new, StreamsMember)
    assert (new.name, new.instance_id, new.process_id) == (old.name, old.instance_id, old.process_id)


@pytest.mark.deep
def test_runs_convert_groups_in_both_directions() -> None:
    """The seeds convert groups in both directions; otherwise the invariants would hold trivially."""
    counts = [simulate(Run(seed, (KIND,), 3_000)).counts for seed in range(12)]
    upgraded = sum(run_counts.get("became StreamsGroup", 0) for run_counts in counts)
    downgraded = sum(run_counts.get("became ClassicGroup", 0) for run_counts in counts)
    assert upgraded >= 10, upgraded
    assert downgraded >= 10, downgraded


def test_no_group_is_converted_in_mode_kafka() -> None:
    counts = [simulate(Run(seed, (KIND,), 1_000, (("streams.mode", "kafka"),))).counts for seed in range(4)]
    assert not any(name.startswith("became") for run_counts in counts for name in run_counts)
