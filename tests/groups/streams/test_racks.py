"""Racks of tasks, standbys that change places after sticky, who hears of missing tags, and what it costs."""

from __future__ import annotations

import pytest
from tests.groups.streams.members import Play

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors.sticky import assignor
from konvene.groups.assignors.tasks.contract import AssignmentConfigs, TaskAssignor
from konvene.groups.assignors.tasks.racks import Cost
from konvene.groups.streams.racks import group_cost, racks_of, spreading
from konvene.groups.streams.topology.configure import KAFKA, KIP, Status
from konvene.groups.streams.topology.topology import Topology
from konvene.shard.image import Topic, Topics
from konvene.sim.transcript.streams_commands import topology_of

TAGS = "group.streams.rack.aware.assignment.tags"
SAYS_WHAT_IS_MISSING = (
    "Missing required client tags for rack-aware standby assignment: [{}]. "
    "Configure them via 'client.tag.<tagKey>' in your Streams config."
)


def topic(name: str, *racks: str) -> Topic:
    """A topic whose partitions' replicas are in these racks: `ab` in a and in b."""
    return Topic(name, Uuid(name.ljust(16, "-").encode()), len(racks), tuple(tuple(each) for each in racks))


def racks(told: str, count: int, *topics: Topic) -> list[str]:
    topology = Topology.from_request(topology_of(f"0:{told}"))
    return ["".join(sorted(each)) for each in racks_of(topology, "0", count, Topics(topics))]


def test_a_task_is_where_all_that_it_reads_is() -> None:
    """Topics with fewer partitions have no part in the later tasks, nor has what it writes or keeps."""
    lines, words = topic("lines", "ab", "bc", "abc"), topic("words", "bc", "ab")
    kept = topic("counts", "d", "d", "d")
    assert racks("lines", 3, lines) == ["ab", "bc", "abc"]
    assert racks("lines<words!counts", 3, lines, words, kept) == ["b", "b", "abc"]
    assert racks("lines>words", 3, lines, words) == ["ab", "bc", "abc"]
    assert racks("lines+words", 2, topic("lines", "a", "b"), topic("words", "b", "b")) == ["", "b"]


def test_partitions_whose_racks_nobody_knows_say_nothing() -> None:
    """Where none is known, that is all there is to say of the subtopology."""
    unknown = Topic("words", Uuid(b"words".ljust(16)), 3)
    assert racks("lines+words", 3, topic("lines", "ab", "", "b"), unknown) == ["ab", "", "b"]
    assert racks("words", 3, unknown) == []
    assert racks("lines+words", 2, topic("lines", "ab", ""), topic("words", "b", "b")) == ["b", "b"]
    assert racks("lines+words", 2, topic("lines", "", ""), unknown) == []


def test_only_sticky_is_followed_by_an_exchange_and_only_by_the_kip() -> None:
    """Other assignors look at tags, or do not want to."""
    kafkas, own = TaskAssignor("sticky", assignor.assign), TaskAssignor("sticky", lambda spec, _: {})
    tagged, untagged = AssignmentConfigs(1, ("zone",)), AssignmentConfigs(1)
    assert spreading(kafkas, tagged, KAFKA) is kafkas
    assert spreading(kafkas, untagged, KIP) is kafkas
    assert spreading(own, tagged, KIP) is own
    assert spreading(kafkas, tagged, KIP).name == "sticky"
    assert spreading(kafkas, tagged, KIP).assign is not assignor.assign


def zoned(mode: str, **settings: str) -> Play:
    """Four processes in two zones, and four tasks with a standby each."""
    play = Play(
        konvene_streams_mode=mode,
        group_streams_num_standby_replicas="1",
        group_streams_assignors="sticky",
        group_streams_initial_rebalance_delay_ms="1000",
        **settings,
    )
    play.say(f"config {TAGS}=zone")
    play.say("topic lines partitions=4 racks=r1")
    play.say("topic counts partitions=4")
    for who, zone in zip(("ann", "bob", "cat", "dan"), "aabb", strict=True):
        play.say(f"streams-heartbeat {who} join topology=0:lines!counts tags=zone:{zone} rack=r{zone}")
    play.say("advance 1000")
    return play


@pytest.mark.parametrize(("mode", "apart"), [(KIP, 4), (KAFKA, 0)])
def test_copies_are_in_both_zones_by_the_kip(mode: str, apart: int) -> None:
    """In mode kafka the group is exactly as Kafka would have it, and what that costs is told as well."""
    play = zoned(mode)
    assert play.group is not None
    cost = group_cost(play.group)
    assert cost == Cost(4, 4, 4 - apart, 0, apart, 4)


def test_an_exchange_is_also_made_where_targets_are_computed_elsewhere() -> None:
    play = zoned(KIP)
    play.say("heavy 0")
    play.say("streams-heartbeat ann tags=zone:b owns=-")
    assert any(line.startswith("record target g") for line in play.say("work"))
    assert play.group is not None
    cost = group_cost(play.group)
    # The three in zone b have three tasks, of whose standbys bob can have one and no more.
    assert cost is not None and cost.tasks_apart == 2


def test_a_group_that_has_no_places_costs_nothing() -> None:
    """Nor is there anything to count before its topics are there."""
    play = Play()
    play.say("streams-heartbeat ann join")
    assert play.group is not None and group_cost(play.group) is None
    play.say("streams-heartbeat bob join group=h topology=0:missing tags=zone:a rack=r1")
    play.say(f"config {TAGS}=zone")
    assert group_cost(play.life.shard.groups["h"]) is None
    play.say("streams-heartbeat ann")
    assert group_cost(play.group) == Cost()


@pytest.mark.parametrize("mode", [KIP, KAFKA])
def test_who_does_not_say_a_tag_hears_which(mode: str) -> None:
    """In the order in which they are configured, with every heartbeat, from the version on that knows it."""
    play = Play(konvene_streams_mode=mode)
    play.say(f"config {TAGS}=zone,cluster,row")
    play.say("streams-heartbeat ann join tags=cluster:1,other:2")
    for _ in range(2):
        assert play.answer("ann").status[-1].status_code == Status.MISSING_CLIENT_TAGS == 6
        assert play.answer("ann").status[-1].status_detail == SAYS_WHAT_IS_MISSING.format("zone, row")
        play.say("streams-heartbeat ann")
    play.say("streams-heartbeat ann version=0")
    assert play.answer("ann").status in (None, ())
    play.say("streams-heartbeat ann tags=zone:1,cluster:1,row:")
    assert play.answer("ann").error_code == Errors.NONE
    assert play.answer("ann").status in (None, ())
    play.say(f"config {TAGS}=")
    play.say("streams-heartbeat bob join")
    assert play.answer("bob").status in (None, ())
