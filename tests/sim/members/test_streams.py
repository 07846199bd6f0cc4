"""What simulated applications of streams groups do: they restore, find their disks, and share no task."""

from __future__ import annotations

from random import Random

import pytest

from konvene.client.streams.tasks import Task
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.invariants import invariants_of
from konvene.sim.members.streams.member import StreamsMember
from konvene.sim.members.streams.state import Stores
from konvene.sim.members.streams.topologies import NAMES, is_internal, topology_of
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.faults import Options
from konvene.sim.world.world import World

TASK, OTHER = Task("0", 0), Task("0", 1)


def world_of(*invariants: str, **parameters: object) -> World:
    sets = [(name.replace("_", "."), str(value)) for name, value in parameters.items()]
    options = Options.without_faults().with_set([("members", "2"), ("partitions", "4"), *sets])
    world = World(
        Random("streams"),
        options,
        kinds=("streams",),
        invariants=invariants_of(invariants) if invariants else (),
    )
    world.begin()
    return world


def members(world: World) -> list[StreamsMember]:
    return [member for member in world.members if isinstance(member, StreamsMember)]


def test_a_disk_keeps_what_was_restored_and_is_behind_what_others_wrote() -> None:
    stores = Stores()
    stores.write("p", ("g", TASK), 10)
    assert (stores.lag("p", ("g", TASK)), stores.lag("q", ("g", TASK))) == (0, 10)
    stores.restore("q", ("g", TASK), 4)
    stores.write("p", ("g", TASK), 1)
    stores.write("p", ("g", OTHER), 2)
    assert stores.lag("q", ("g", TASK)) == 7
    assert dict(stores.on_disk("q", "g")) == {TASK: 4}
    assert dict(stores.on_disk("q", "another")) == {}
    stores.restore("q", ("g", TASK), 100)
    assert (stores.lag("q", ("g", TASK)), stores.end(("g", TASK)), stores.size()) == (0, 11, 13)
    stores.delete_changelogs("g")
    assert (stores.size(), stores.lag("q", ("g", TASK)), dict(stores.on_disk("q", "g"))) == (
        0,
        0,
        {TASK: 0},
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_application_of_the_catalogue_runs(name: str) -> None:
    """Its topics are made, and every task is run by one."""
    world = world_of("streams", topology=name)
    world.run_for(60_000)
    group = world.runtime.core.groups["g1"]
    assert isinstance(group, StreamsGroup) and group.state == "Stable", group
    tasks = [task for member in members(world) for task in sorted(member.running)]
    assert len(tasks) == len(set(tasks)) == sum(group.soft.configured.tasks.values())  # type: ignore[union-attr]
    internal = set(topology_of(name, "g1").internal_topics)
    assert {topic for topic in world.topics.by_name if is_internal(topic)} == internal


def test_a_task_is_run_when_it_is_restored_and_a_copy_makes_that_short() -> None:
    """With a standby the other process has little to restore when the first one dies."""
    longest = {}
    for standbys in (0, 1):
        world = world_of("streams", topology="stateful", standbys=standbys, restore_rate=20)
        world.run_for(60_000)
        dying, stays = members(world)
        assert len(dying.running) + len(stays.running) == 3
        behind = [world.stores.lag(stays.process_id, ("g1", task)) for task in dying.running]
        dying.die()
        world.run_for(12_000)
        waits = stays.tasks.active - stays.running
        assert len(stays.tasks.active) == 3, stays
        assert bool(waits) == (not standbys), stays
        longest[standbys] = max(behind)
        world.run_for(300_000)
        assert stays.is_stable and len(stays.running) == 3
    assert longest[1] < longest[0]


def test_topics_that_cannot_be_made_are_made_when_it_is_calm() -> None:
    world = world_of("streams", topology="chain", create_fails=1.0)
    world.run_for(30_000)
    group = world.runtime.core.groups["g1"]
    assert group.state == "NotReady" and not any(map(is_internal, world.topics.by_name))
    world.conditions = Options.without_faults()
    world.run_for(30_000)
    assert group.state == "Stable"


def test_what_does_not_fit_its_sources_is_deleted_and_made_again() -> None:
    world = world_of("streams", topology="stateful")
    world.run_for(30_000)
    world.set_topic("orders", 7, recreate=False)
    world.run_for(30_000)
    group = world.runtime.core.groups["g1"]
    assert group.state == "NotReady"
    world.internal_topics.delete_misfits()
    world.run_for(30_000)
    assert (group.state, world.topics.by_name["g1-counts-changelog"].partitions) == ("Stable", 7)


def test_two_that_run_the_same_task_are_found_out_by_what_they_believe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the oracle detects it: the indexes of the coordinator are wrong as well."""
    monkeypatch.setattr(StreamsGroup, "processes", lambda group, role, subtopology, partition: frozenset())
    world = world_of(topology="stateless", members=1)
    world.run_for(20_000)
    world.new_member().start()
    with pytest.raises(InvariantViolation, match="TasksAreExclusive"):
        world.run_for(60_000)


def test_an_application_shuts_down_when_one_of_its_members_wants_it() -> None:
    world = world_of("streams", topology="stateless")
    world.run_for(20_000)
    first, second = members(world)
    world.faults_disabled = False
    first.request_shutdown()
    world.run_for(6_000)
    assert first.life > 2 and second.life > 2
    assert world.counts["members that stopped"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_an_application_rolls_to_its_next_topologies(name: str) -> None:
    """Process by process, and what is new in them is run; a roll begins when the last one has arrived."""
    world = world_of("streams", topology=name, streams_mode="kip")
    world.run_for(60_000)
    for epoch in (1, 2, 3):
        world.internal_topics.next_topology("g1")
        world.internal_topics.next_topology("g1")
        assert world.internal_topics.deployed == {"g1": epoch}
        world.faults_disabled = True  # Who is behind is started anew.
        world.run_for(90_000)
        world.faults_disabled = False
        group = world.runtime.core.groups["g1"]
        assert isinstance(group, StreamsGroup) and group.state == "Stable", group
        assert {member.topology_epoch for member in group.members.values()} == {epoch}
        tasks = [task for member in members(world) for task in sorted(member.running)]
        assert len(tasks) == len(set(tasks)) == sum(group.soft.configured.tasks.values())  # type: ignore[union-attr]
        assert not group.warmup
