"""Simulated Kafka Streams applications: state restoration, standbys, internal topics, topology upgrades."""

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


def begun_world(*invariants: str, **parameters: object) -> World:
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


def test_disk_keeps_restored_offsets_and_lags_behind_other_writers() -> None:
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
    """Its internal topics are created, and every task runs on exactly one member."""
    world = begun_world("streams", topology=name)
    world.run_for(60_000)
    group = world.runtime.core.groups["g1"]
    assert isinstance(group, StreamsGroup) and group.state == "Stable", group
    tasks = [task for member in members(world) for task in sorted(member.running)]
    assert len(tasks) == len(set(tasks)) == sum(group.soft.configured.tasks.values())  # type: ignore[union-attr]
    internal = set(topology_of(name, "g1").internal_topics)
    assert {topic for topic in world.topics.by_name if is_internal(topic)} == internal


def test_task_runs_once_restored_and_a_standby_shortens_restoration() -> None:
    """With a standby the surviving process has less to restore than without."""
    longest_lag = {}
    for standbys in (0, 1):
        world = begun_world("streams", topology="stateful", standbys=standbys, restore_rate=20)
        world.run_for(60_000)
        dying, stays = members(world)
        assert len(dying.running) + len(stays.running) == 3
        lags = [world.stores.lag(stays.process_id, ("g1", task)) for task in dying.running]
        dying.die()
        world.run_for(12_000)
        restoring = stays.tasks.active - stays.running
        assert len(stays.tasks.active) == 3, stays
        assert bool(restoring) == (not standbys), stays
        longest_lag[standbys] = max(lags)
        world.run_for(300_000)
        assert stays.is_stable and len(stays.running) == 3
    assert longest_lag[1] < longest_lag[0]


def test_internal_topics_are_created_once_creation_succeeds() -> None:
    world = begun_world("streams", topology="chain", create_fails=1.0)
    world.run_for(30_000)
    group = world.runtime.core.groups["g1"]
    assert group.state == "NotReady" and not any(map(is_internal, world.topics.by_name))
    world.conditions = Options.without_faults()
    world.run_for(30_000)
    assert group.state == "Stable"


def test_changelog_with_other_partitions_than_its_source_is_recreated() -> None:
    world = begun_world("streams", topology="stateful")
    world.run_for(30_000)
    world.set_topic("orders", 7, recreate=False)
    world.run_for(30_000)
    group = world.runtime.core.groups["g1"]
    assert group.state == "NotReady"
    world.internal_topics.delete_misfits()
    world.run_for(30_000)
    assert (group.state, world.topics.by_name["g1-counts-changelog"].partitions) == ("Stable", 7)


def test_task_running_on_two_members_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the members' own state shows it: the coordinator's indexes are wrong as well."""
    monkeypatch.setattr(StreamsGroup, "processes", lambda group, role, subtopology, partition: frozenset())
    world = begun_world(topology="stateless", members=1)
    world.run_for(20_000)
    world.new_member().start()
    with pytest.raises(InvariantViolation, match="TasksAreExclusive"):
        world.run_for(60_000)


def test_shutdown_request_of_a_member_stops_the_application() -> None:
    world = begun_world("streams", topology="stateless")
    world.run_for(20_000)
    first, second = members(world)
    world.faults_disabled = False
    first.request_shutdown()
    world.run_for(6_000)
    assert first.life > 2 and second.life > 2
    assert world.counts["members that stopped"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_application_rolls_to_each_next_topology(name: str) -> None:
    """Processes restart one by one and run the new tasks; a roll starts after the previous one ended."""
    world = begun_world("streams", topology=name, streams_mode="kip")
    world.run_for(60_000)
    for epoch in (1, 2, 3):
        world.internal_topics.next_topology("g1")
        world.internal_topics.next_topology("g1")
        assert world.internal_topics.deployed == {"g1": epoch}
        world.faults_disabled = True  # Members with an older topology epoch are restarted.
        world.run_for(90_000)
        world.faults_disabled = False
        group = world.runtime.core.groups["g1"]
        assert isinstance(group, StreamsGroup) and group.state == "Stable", group
        assert {member.topology_epoch for member in group.members.values()} == {epoch}
        tasks = [task for member in members(world) for task in sorted(member.running)]
        assert len(tasks) == len(set(tasks)) == sum(group.soft.configured.tasks.values())  # type: ignore[union-attr]
        assert not group.warmup
