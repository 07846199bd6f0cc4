"""The contract of every assignor. A new row of `ASSIGNORS` is tested against all of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.golden import kept, moved, near, sizes, units
from tests.groups.assignors.groups import TOPICS, groups, having, shuffled, with_member, without

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors import (
    ASSIGNORS,
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    SubscriptionType,
    TopicSpec,
    checked,
    each_once,
)

every = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
balanced = pytest.mark.parametrize(
    "assignor", [ASSIGNORS["uniform"], ASSIGNORS["rack-aware"]], ids=["uniform", "rack-aware"]
)
NEW = "\uffffnew"


def spread(given: GroupAssignment) -> int:
    return max(sizes(given)) - min(sizes(given))


def test_table_begins_with_kafkas_default() -> None:
    assert list(ASSIGNORS) == ["uniform", "range", "rack-aware"]
    assert all(row.name == name for name, row in ASSIGNORS.items())


@every
@whenever(groups())
def test_every_partition_is_assigned_once_to_a_subscriber(assignor: Assignor, spec: GroupSpec) -> None:
    """Every partition of every subscribed topic, and no other; every member is in the result."""
    given = assignor.assign(spec)
    read = frozenset().union(*(of.subscribed for of in spec.members.values()))
    wanted = {(topic, p) for topic in read for p in range(spec.topics[topic].partitions)}
    count = Counter(unit for mine in given.values() for unit in units(mine))
    assert given.keys() == spec.members.keys()
    assert count == Counter(wanted)
    for name, mine in given.items():
        assert mine.keys() <= spec.members[name].subscribed
        assert all(type(some) is tuple and some == tuple(sorted(some)) and some for some in mine.values())
    assert checked(spec, given) == given


@every
def test_empty_groups_and_topics(assignor: Assignor) -> None:
    """No members, no topics, no partitions."""
    topic = {TOPICS[0]: TopicSpec(0)}
    reader = MemberSpec(frozenset(topic))
    assert assignor.assign(GroupSpec.of({}, topic)) == {}
    assert assignor.assign(GroupSpec.of({"a": MemberSpec(frozenset())}, topic)) == {"a": {}}
    assert assignor.assign(GroupSpec.of({"a": reader}, topic)) == {"a": {}}
    assert assignor.assign(replace(GroupSpec.of({"a": reader}, topic), subscription_type=MIXED)) == {"a": {}}


MIXED = SubscriptionType.HETEROGENEOUS


@every
@pytest.mark.parametrize("others", [[], [TOPICS[0]]], ids=["alike", "mixed"])
def test_a_missing_topic_is_an_error(assignor: Assignor, others: list[Uuid]) -> None:
    """The coordinator resolves names first: an id without a topic is its bug, reported as in Kafka."""
    members = {"a": MemberSpec(frozenset(TOPICS[:2])), "b": MemberSpec(frozenset(others or TOPICS[:2]))}
    with pytest.raises(PartitionAssignorError, match=f"{TOPICS[1]} which doesn't exist") as raised:
        assignor.assign(GroupSpec.of(members, {TOPICS[0]: TopicSpec(3)}))
    assert raised.value.error is Errors.UNKNOWN_SERVER_ERROR


@every
@whenever(groups(), st.integers())
def test_order_of_maps_does_not_matter(assignor: Assignor, spec: GroupSpec, seed: int) -> None:
    given, other = assignor.assign(spec), assignor.assign(shuffled(spec, seed))
    assert given == other
    assert list(given) == list(other)


HASHED = """
from tests.groups.assignors.groups import *
from konvene.groups.assignors import ASSIGNORS
import sys
chance = random.Random(7)
for size in range(2, 40):
    topics = {Uuid(chance.randbytes(16)): TopicSpec(
        9, tuple(frozenset(chance.sample(RACKS, 2)) for _ in range(9))) for _ in range(12)}
    for alike in (True, False):
        members = {}
        for n in range(size):
            of = frozenset(topics) if alike else frozenset(chance.sample(list(topics), 5))
            members[f"m{n}"] = MemberSpec(of, {}, None, chance.choice(RACKS))
        spec = GroupSpec.of(members, topics)
        assign = ASSIGNORS[sys.argv[1]].assign
        first = assign(spec)
        print({k: dict(v) for k, v in first.items()})
        print({k: dict(v) for k, v in assign(without(having(spec, first), "m1")).items()})
"""


@every
def test_hash_seed_does_not_matter(assignor: Assignor) -> None:
    """Not even for the order of the result."""

    def output(seed: int) -> bytes:
        command = [sys.executable, "-c", HASHED, assignor.name]
        env = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(path or "." for path in sys.path)}
        return subprocess.run(command, env=env, check=True, capture_output=True, timeout=120).stdout

    first = output(1)
    assert len(first) > 10_000
    assert first == output(2) == output(3)


@every
@whenever(groups())
def test_an_unchanged_group_keeps_its_assignment(assignor: Assignor, spec: GroupSpec) -> None:
    """An unchanged group moves nothing."""
    given = assignor.assign(spec)
    assert assignor.assign(having(spec, given)) == given


@balanced
@whenever(groups(racks=False))
def test_an_unchanged_assignment_is_the_same_mapping(assignor: Assignor, spec: GroupSpec) -> None:
    for name, mine in assignor.assign(spec).items():
        before = spec.members[name].assigned
        assert (mine is before) == (mine == before) or not mine


def test_conflicting_ownership_is_resolved_for_the_first_owner() -> None:
    """Two own all partitions, one of them twice and with missing ones; a member without any keeps its
    value."""
    topics, (missing, read) = {TOPICS[1]: TopicSpec(2)}, TOPICS[:2]
    reads = frozenset(topics)
    members = {
        "b": MemberSpec(reads, {read: (0, 1)}, "i", "rack"),
        "a": MemberSpec(reads, {read: (3, 1, 1), missing: (0,)}),
        "c": MemberSpec(reads),
    }
    once = each_once(members, topics)
    assert list(once.items()) == [
        ("b", MemberSpec(reads, {read: (0,)}, "i", "rack")),
        ("a", MemberSpec(reads, {read: (1,)})),
        ("c", members["c"]),
    ]
    assert once["c"] is members["c"]
    for assignor in ASSIGNORS.values():
        given = assignor.assign(GroupSpec.of(once, topics))
        assert sizes(given) == [1, 1, 0]


# Balance, and stickiness within it ---------------------------------------------------------------


@balanced
@whenever(groups(alike=True))
def test_sizes_in_a_homogeneous_group_differ_by_at_most_one(assignor: Assignor, spec: GroupSpec) -> None:
    assert spread(assignor.assign(spec)) <= 1


@balanced
@whenever(groups(alike=False))
def test_no_move_between_two_subscribers_improves_the_balance(assignor: Assignor, spec: GroupSpec) -> None:
    """No member has a partition that a subscriber with two fewer could have."""
    given = assignor.assign(spec)
    size = {name: sum(map(len, mine.values())) for name, mine in given.items()}
    for name, mine in given.items():
        for other, of in spec.members.items():
            assert size[name] - size[other] <= 1 or not mine.keys() & of.subscribed


def test_returned_partitions_do_not_unbalance_their_former_owner() -> None:
    """Its former owner has fewer than the new one, but two more than a third subscriber of what it kept."""
    kept, shared, own, others = (
        Uuid(name.ljust(16, b"-")) for name in (b"kept", b"shared", b"own", b"others")
    )
    had = {kept: (0, 1), shared: (0,)}
    members = {
        "a": MemberSpec(frozenset((kept, shared, own)), had),
        "aa": MemberSpec(frozenset((kept,))),
        "aaa": MemberSpec(frozenset((kept, shared, others))),
        "b": MemberSpec(frozenset((kept, shared, others))),
    }
    topics = {kept: TopicSpec(3), shared: TopicSpec(3), others: TopicSpec(4), own: TopicSpec(2)}
    given = ASSIGNORS["uniform"].assign(GroupSpec(members, topics, MIXED))
    size = {name: sum(map(len, mine.values())) for name, mine in given.items()}
    assert size["a"] - size["aa"] <= 1 or kept not in given["a"]


@whenever(groups(alike=True, racks=False))
def test_no_balanced_assignment_keeps_more(spec: GroupSpec) -> None:
    """Every member keeps its quota, and the allowed number of members one more: the maximum."""
    given = ASSIGNORS["uniform"].assign(spec)
    held = [
        sum(len(some) for topic, some in of.assigned.items() if topic in of.subscribed)
        for of in spec.members.values()
    ]
    each, longer = divmod(sum(sizes(given)), len(held))
    most = sum(min(size, each) for size in held) + min(longer, sum(size > each for size in held))
    assert kept(spec, given) == most


@whenever(groups(alike=False, racks=False))
def test_a_homogeneous_group_declared_heterogeneous_is_balanced(spec: GroupSpec) -> None:
    """A homogeneous group that is declared heterogeneous is balanced all the same."""
    one = next(iter(spec.members.values())).subscribed
    alike = {name: replace(of, subscribed=one) for name, of in spec.members.items()}
    given = ASSIGNORS["uniform"].assign(GroupSpec(alike, spec.topics, MIXED))
    assert sizes(given) == sizes(ASSIGNORS["uniform"].assign(GroupSpec.of(alike, spec.topics)))


@whenever(groups(alike=True, racks=False))
def test_a_new_member_takes_its_share_and_nothing_else_moves(spec: GroupSpec) -> None:
    uniform = ASSIGNORS["uniform"].assign
    before = having(spec, uniform(spec))
    one = next(iter(spec.members.values()))
    joined = with_member(before, NEW, MemberSpec(one.subscribed))
    given = uniform(joined)
    assert moved(joined, given) == sum(map(len, given[NEW].values()))


@balanced
@whenever(groups(racks=False), st.data())
def test_only_a_departed_members_partitions_move_in_a_homogeneous_group(
    assignor: Assignor, spec: GroupSpec, data: st.DataObject
) -> None:
    """In a mixed group released partitions may let others be balanced; even then there is no needless
    exchange between two members."""
    before = having(spec, assignor.assign(spec))
    left = without(before, data.draw(st.sampled_from(sorted(spec.members))))
    given = assignor.assign(left)
    if (
        left.subscription_type is SubscriptionType.HOMOGENEOUS
        and spec.subscription_type is left.subscription_type
    ):
        assert moved(left, given) == 0
    elif left.members:
        was = {unit: name for name, of in left.members.items() for unit in units(of.assigned)}
        pairs = {
            (was[unit], name)
            for name, mine in given.items()
            for unit in units(mine)
            if was.get(unit, name) != name
        }
        assert not {(b, a) for a, b in pairs} & pairs


@balanced
@whenever(groups())
def test_racks_never_cost_balance(assignor: Assignor, spec: GroupSpec) -> None:
    """Among balanced assignors the rack-aware one has sizes as good, and at least as many near partitions."""
    given, other = assignor.assign(spec), ASSIGNORS["uniform"].assign(spec)
    assert sizes(given) <= sizes(other)
    assert near(spec, given) >= near(spec, other)
