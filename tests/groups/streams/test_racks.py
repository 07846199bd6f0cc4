"""Racks of tasks, the exchange of standbys after the sticky assignor, missing client tags, and the rack
cost."""

from __future__ import annotations

import pytest
from tests.groups.streams.members import Play

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors.sticky import assignor
from konvene.groups.assignors.tasks.contract import AssignmentConfigs, TaskAssignor
from konvene.groups.assignors.tasks.racks import Cost
from konvene.groups.streams.racks import group_cost, racks_of, with_standby_exchange
from konvene.groups.streams.topology.configure import KAFKA, KIP, Status
from konvene.groups.streams.topology.topology import Topology
from konvene.shard.image import Topic, Topics
from konvene.sim.transcript.streams_commands import topology_of

TAGS = "group.streams.rack.aware.assignment.tags"
MISSING_TAGS = (
    "Missing required client tags for rack-aware standby assignment: [{}]. "
    "Configure them via 'client.tag.<tagKey>' in your Streams config."
)


def topic(name: str, *racks: str) -> Topic:
    """Return a topic with its partitions' replicas in these racks: `ab` in a and in b."""
    return Topic(name, Uuid(name.ljust(16, "-").encode()), len(racks), tuple(tuple(each) for each in racks))


def racks(source_topics: str, count: int, *topics: Topic) -> list[str]:
    topology = Topology.from_request(topology_of(f"0:{source_topics}"))
    return ["".join(sorted(each)) for each in racks_of(topology, "0", count, Topics(topics))]


def test_a_tasks_racks_are_those_of_all_its_sources() -> None:
    """Topics with fewer partitions do not count for the later tasks; sinks and changelogs never count."""
    lines, words = topic("lines", "ab", "bc", "abc"), topic("words", "bc", "ab")
    changelog = topic("counts", "d", "d", "d")
    assert racks("lines", 3, lines) == ["ab", "bc", "abc"]
    assert racks("lines<words!counts", 3, lines, words, changelog) == ["b", "b", "abc"]
    assert racks("lines>words", 3, lines, words) == ["ab", "bc", "abc"]
    assert racks("lines+words", 2, topic("lines", "a", "b"), topic("words", "b", "b")) == ["", "b"]


def test_partitions_without_known_racks_do_not_count() -> None:
    """If no rack is known, the subtopology has no rack information."""
    unknown = Topic("words", Uuid(b"words".ljust(16)), 3)
    assert racks("lines+words", 3, topic("lines", "ab", "", "b"), unknown) == ["ab", "", "b"]
    assert racks("words", 3, unknown) == []
    assert racks("lines+words", 2, topic("lines", "ab", ""), topic("words", "b", "b")) == ["b", "b"]
    assert racks("lines+words", 2, topic("lines", "", ""), unknown) == []


def test_standbys_are_exchanged_only_after_sticky_and_in_mode_kip() -> None:
    """Other assignors consider tags themselves, or ignore them."""
    kafkas, own = TaskAssignor("sticky", assignor.assign), TaskAssignor("sticky", lambda spec, _: {})
    tagged, untagged = AssignmentConfigs(1, ("zone",)), AssignmentConfigs(1)
    assert with_standby_exchange(kafkas, tagged, KAFKA) is kafkas
    assert with_standby_exchange(kafkas, untagged, KIP) is kafkas
    assert with_standby_exchange(own, tagged, KIP) is own
    assert with_standby_exchange(kafkas, tagged, KIP).name == "sticky"
    assert with_standby_exchange(kafkas, tagged, KIP).assign is not assignor.assign


def zoned(mode: str, **settings: str) -> Play:
    """Return a group of four processes in two zones, with four tasks and a standby each."""
    play = Play(
        konvene_streams_mode=mode,
        group_streams_num_standby_replicas="1",
        group_streams_assignors="sticky",
        group_streams_initial_rebalance_delay_ms="1000",
        **settings,
    )
    play.run(f"config {TAGS}=zone")
    play.run("topic lines partitions=4 racks=r1")
    play.run("topic counts partitions=4")
    for name, zone in zip(("ann", "bob", "cat", "dan"), "aabb", strict=True):
        play.run(f"streams-heartbeat {name} join topology=0:lines!counts tags=zone:{zone} rack=r{zone}")
    play.run("advance 1000")
    return play


@pytest.mark.parametrize(("mode", "apart"), [(KIP, 4), (KAFKA, 0)])
def test_standbys_are_in_both_zones_in_mode_kip(mode: str, apart: int) -> None:
    """In mode kafka the assignment is exactly Kafka's; its cost is reported in both modes."""
    play = zoned(mode)
    assert play.group is not None
    cost = group_cost(play.group)
    assert cost == Cost(4, 4, 4 - apart, 0, apart, 4)


def test_standbys_are_exchanged_in_background_computations_too() -> None:
    play = zoned(KIP)
    play.run("heavy 0")
    play.run("streams-heartbeat ann tags=zone:b owns=-")
    assert any(line.startswith("record target g") for line in play.run("work"))
    assert play.group is not None
    cost = group_cost(play.group)
    # The three in zone b have three tasks, of whose standbys bob can have one and no more.
    assert cost is not None and cost.tasks_apart == 2


def test_a_group_without_racks_and_tags_has_no_cost() -> None:
    """Nor is there a cost before its topics exist."""
    play = Play()
    play.run("streams-heartbeat ann join")
    assert play.group is not None and group_cost(play.group) is None
    play.run("streams-heartbeat bob join group=h topology=0:missing tags=zone:a rack=r1")
    play.run(f"config {TAGS}=zone")
    assert group_cost(play.life.shard.groups["h"]) is None
    play.run("streams-heartbeat ann")
    assert group_cost(play.group) == Cost()


@pytest.mark.parametrize("mode", [KIP, KAFKA])
def test_missing_client_tags_are_reported(mode: str) -> None:
    """In the order of the configuration, with every heartbeat, from the version on that has this status."""
    play = Play(konvene_streams_mode=mode)
    play.run(f"config {TAGS}=zone,cluster,row")
    play.run("streams-heartbeat ann join tags=cluster:1,other:2")
    for _ in range(2):
        assert play.answer("ann").status[-1].status_code == Status.MISSING_CLIENT_TAGS == 6
        assert play.answer("ann").status[-1].status_detail == MISSING_TAGS.format("zone, row")
        play.run("streams-heartbeat ann")
    play.run("streams-heartbeat ann version=0")
    assert play.answer("ann").status in (None, ())
    play.run("streams-heartbeat ann tags=zone:1,cluster:1,row:")
    assert play.answer("ann").error_code == Errors.NONE
    assert play.answer("ann").status in (None, ())
    play.run(f"config {TAGS}=")
    play.run("streams-heartbeat bob join")
    assert play.answer("bob").status in (None, ())
