"""Placement of copies: shared tags, local racks, and their cost."""

from __future__ import annotations

from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.racks import Cost, Racks, cost

STATEFUL = TopologyDescriber({"0": Subtopology(2, True)})


def member(where: str, rack: str | None = None) -> AssignmentMemberSpec:
    """Return a member; `a1` means zone a, cluster 1, and `-` means that the tag is missing."""
    values = {"zone": where[0], "cluster": where[1], "other": "x"}
    return AssignmentMemberSpec(
        where, rack_id=rack, client_tags={tag: value for tag, value in values.items() if value != "-"}
    )


def group(*tags: str, **members: AssignmentMemberSpec) -> GroupSpec:
    return GroupSpec(members, AssignmentConfigs(1, tags))


FOUR = group("zone", "cluster", m=member("a1"), n=member("a2"), o=member("b1"), p=member("b2"))


def test_less_shared_tags_come_first() -> None:
    """Of two tags, one shared is better than both; a tag counts once, however many copies share it."""
    racks = Racks.of(FOUR, STATEFUL)
    best = sorted("nop", key=lambda name: (racks.clash(name, ["m"]), name))
    assert best == ["p", "n", "o"]
    assert racks.clash("p", ["m"]) == 0
    assert racks.clash("n", ["m"]) == racks.clash("o", ["m"]) == racks.clash("n", ["m", "m"])
    assert racks.clash("m", ["n"]) < racks.clash("m", ["n", "o"]) == racks.clash("m", ["m"])


def test_a_tag_all_of_whose_values_are_taken_makes_no_difference() -> None:
    """As in Kafka's rule: both clusters are taken, so the third copy is placed by zone."""
    spec = group(
        "zone", "cluster", m=member("a1"), n=member("b2"), o=member("c1"), p=member("c2"), q=member("b1")
    )
    racks = Racks.of(spec, STATEFUL)
    assert racks.clash("o", ["m", "n"]) == racks.clash("p", ["m", "n"]) < racks.clash("q", ["m", "n"])


def test_a_member_without_a_tag_follows_one_with_all_tags() -> None:
    """A missing tag is shared with no other member, so it precedes a member that shares more."""
    spec = group("zone", "cluster", m=member("a1"), full=member("b2"), half=member("b-"), none=member("--"),
                 clashes=member("a2"), both=member("a-"))  # fmt: skip
    racks = Racks.of(spec, STATEFUL)
    order = ["full", "half", "none", "clashes", "both"]
    clashes = [racks.clash(name, ["m"]) for name in order]
    assert clashes == sorted(set(clashes))
    assert racks.clash("none", ["none"]) == racks.clash("none", [])


def test_only_tags_that_are_configured_count() -> None:
    racks = Racks.of(group("zone", m=member("a1"), n=member("b1")), STATEFUL)
    assert racks.clash("n", ["m"]) == 0
    assert not racks.is_trivial
    assert Racks.of(group(m=member("a1"), n=member("a1")), STATEFUL).clash("n", ["m"]) == 0


def test_a_member_in_the_rack_of_all_sources_is_local() -> None:
    """A member with unknown racks is not remote, nor is any if no rack has all of the task's partitions."""
    racks_of = (frozenset({"r1"}), frozenset({"r1", "r2"}), frozenset[str]())
    topology = TopologyDescriber({"0": Subtopology(3, racks=racks_of), "1": Subtopology(3)})
    spec = group(m=member("a1", "r1"), n=member("a1", "r2"), o=member("a1", "far"), p=member("a1"))
    racks = Racks.of(spec, topology)
    local = {name: [racks.is_local(name, ("0", p)) for p in range(3)] for name in "mnop"}
    assert local == {
        "m": [True, True, True],
        "n": [False, True, True],
        "o": [False, False, True],
        "p": [True, True, True],
    }
    assert racks.is_local("o", ("1", 0)) and racks.is_local("o", ("0", 3))


def test_racks_are_trivial_without_information() -> None:
    """Racks of members alone are useless, and so are racks of tasks alone."""
    near = TopologyDescriber({"0": Subtopology(1, racks=(frozenset({"r1"}),))})
    racked, plain = group(m=member("a1", "r1")), group(m=member("a1"))
    cases = ((plain, STATEFUL), (racked, STATEFUL), (plain, near), (racked, near))
    assert [Racks.of(*case).is_trivial for case in cases] == [True, True, True, False]


def test_the_cost_of_an_assignment() -> None:
    """Pairs of copies that share all tags, or some; remote copies; and the number of spread tasks, of all."""
    topology = TopologyDescriber({"0": Subtopology(4, True, (frozenset({"r1"}),) * 4)})
    spec = group("zone", "cluster", m=member("a1", "r1"), n=member("a1", "r2"), o=member("b1", "r2"),
                 p=member("b2"), q=member("c-"))  # fmt: skip
    given = {
        "m": MemberAssignment(active={"0": (0, 1)}, standby={"0": (2,)}),
        "n": MemberAssignment(standby={"0": (0,)}, warmup={"0": (3,)}, active={"0": (2,)}),
        "o": MemberAssignment(standby={"0": (0,)}),
        "p": MemberAssignment(standby={"0": (1,)}),
        "q": MemberAssignment(active={"0": (3,)}),
        "stranger": MemberAssignment(standby={"0": (3,)}),
    }
    # Task 0: m and n share all, either shares a cluster with o. 1: m and p are apart. 2: n and m share all.
    # 3: q has no cluster, so it is unknown whether it is apart from n.
    assert cost(spec, topology, given) == Cost(
        actives_outside=1, copies_outside=3, pairs_sharing_all=2, pairs_sharing_some=2, tasks_apart=1,
        tasks_with_copies=4,
    )  # fmt: skip


def test_without_tags_nothing_is_shared_and_nothing_is_apart() -> None:
    given = {"m": MemberAssignment(active={"0": (0,)}), "n": MemberAssignment(standby={"0": (0,)})}
    spec = group(m=member("a1"), n=member("a1"))
    assert cost(spec, STATEFUL, given) == Cost(tasks_with_copies=1)
    assert cost(spec, STATEFUL, {"m": given["m"]}) == Cost()
