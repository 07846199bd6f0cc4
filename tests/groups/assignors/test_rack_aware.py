"""The rack-aware assignor, which has no counterpart among Kafka's server-side assignors."""

from __future__ import annotations

from itertools import product

from hypothesis import assume
from hypothesis import given as whenever
from tests.groups.assignors.golden import cases, moved, near, sizes
from tests.groups.assignors.groups import TOPICS, groups, having, with_member

from konvene.groups.assignors import GroupAssignment, GroupSpec, MemberSpec, TopicSpec, rack_aware
from konvene.groups.assignors.uniform import assignor

ORDERS, PAYMENTS = sorted(TOPICS[:2])
A, B, C = (frozenset(rack) for rack in "abc")


def group(racks: str, *topics: tuple[frozenset[str], ...]) -> GroupSpec:
    """Return a group of members `0a`, `1b`, … in these racks, all subscribed to topics with these
    replicas."""
    read = dict(zip((ORDERS, PAYMENTS), (TopicSpec(len(of), of) for of in topics), strict=False))
    members = {f"{n}{rack}": MemberSpec(frozenset(read), rack_id=rack) for n, rack in enumerate(racks)}
    return GroupSpec.of(members, read)


def of_orders(given: GroupAssignment) -> dict[str, tuple[int, ...]]:
    return {name: mine.get(ORDERS, ()) for name, mine in given.items()}


def test_members_get_partitions_of_their_rack() -> None:
    spec = group("abc", (C, B, A, C, B, A))
    assert of_orders(rack_aware.assign(spec)) == {"0a": (2, 5), "1b": (1, 4), "2c": (0, 3)}
    assert near(spec, assignor.assign(spec)) == 0


def test_balance_comes_first() -> None:
    """All replicas are in one rack. Its member gets no more than its share, but the larger one."""
    spec = group("ab", (B, B, B, B, B))
    assert of_orders(rack_aware.assign(spec)) == {"0a": (3, 4), "1b": (0, 1, 2)}


def test_the_larger_share_goes_to_the_nearer_member() -> None:
    """Even if its owner gives up nothing near, and the new owner takes it from a third member."""
    no_racks: frozenset[str] = frozenset()
    spec = group("xyc", (C, no_racks, no_racks, C))
    held = {"0x": (0,), "1y": (1, 2), "2c": (3,)}
    members = {
        name: MemberSpec(of.subscribed, {ORDERS: held[name]}, None, of.rack_id)
        for name, of in spec.members.items()
    }
    given = rack_aware.assign(GroupSpec.of(members, spec.topics))
    assert given["2c"] == {ORDERS: (0, 3)}
    assert sizes(given) == [2, 1, 1]


def test_partitions_are_exchanged_in_cycles_for_a_nearer_whole() -> None:
    """The cycle of exchanges goes over three racks: no exchange of two members would help."""
    spec = group("abc", (A | B, B | C, C | A))
    held = {"0a": (1,), "1b": (2,), "2c": (0,)}
    members = {
        name: MemberSpec(of.subscribed, {ORDERS: held[name]}, None, of.rack_id)
        for name, of in spec.members.items()
    }
    far = GroupSpec.of(members, spec.topics)
    assert near(far, held_as(held)) == 0
    assert near(far, rack_aware.assign(far)) == 3


def held_as(held: dict[str, tuple[int, ...]]) -> GroupAssignment:
    return {name: {ORDERS: some} for name, some in held.items()}


def test_a_new_member_gets_partitions_of_its_rack() -> None:
    """No other partition moves: overloaded members release those that are near to the new one."""
    spec = group("aabb", (A | C, A | C, A, A, B | C, B | C, B, B))
    before = having(spec, rack_aware.assign(spec))
    joined = with_member(before, "4c", MemberSpec(frozenset([ORDERS]), rack_id="c"))
    given = rack_aware.assign(joined)
    assert len(given["4c"][ORDERS]) == 1 == moved(joined, given)
    assert near(joined, given) == 8


def test_a_moved_replica_is_followed() -> None:
    """A moved replica is worth a move of the partition, if a member there can give one in return."""
    spec = group("ab", (A, B, A, B))
    before = having(spec, rack_aware.assign(spec))
    assert near(before, rack_aware.assign(before)) == 4
    elsewhere = GroupSpec.of(before.members, {ORDERS: TopicSpec(4, (B, A, A, B))})
    given = rack_aware.assign(elsewhere)
    assert of_orders(given) == {"0a": (1, 2), "1b": (0, 3)}
    assert moved(elsewhere, given) == 2


@whenever(groups(alike=True, racks=True))
def test_no_balanced_assignment_is_nearer(spec: GroupSpec) -> None:
    """Compared with every assignment of these sizes: a member's rack, its size, its near partitions."""
    subscribed = next(iter(spec.members.values())).subscribed
    partitions = [racks for topic in subscribed for racks in spec.topics[topic].racks]
    assume(len(partitions) <= 9)
    racks = [of.rack_id for of in spec.members.values()]
    each, longer = divmod(len(partitions), len(racks))
    best = {(0,) * len(racks): 0}
    for replicas in partitions:
        further: dict[tuple[int, ...], int] = {}
        for (had, found), member in product(best.items(), range(len(racks))):
            has = tuple(size + (at == member) for at, size in enumerate(had))
            if max(has) <= each + (longer > 0) and sum(size > each for size in has) <= longer:
                further[has] = max(further.get(has, 0), found + (racks[member] in replicas))
        best = further
    assert near(spec, rack_aware.assign(spec)) == max(best.values())


@whenever(groups(racks=False))
def test_without_racks_it_is_uniform(spec: GroupSpec) -> None:
    assert rack_aware.assign(spec) == assignor.assign(spec)


def test_nearer_than_kafka_in_its_own_cases() -> None:
    """As balanced as Kafka's uniform in all four hundred cases, with half as many near partitions again."""
    ours = theirs = 0
    for case in cases("uniform"):
        given = rack_aware.assign(case.spec)
        assert sizes(given) <= sizes(case.output)
        assert near(case.spec, given) >= near(case.spec, assignor.assign(case.spec))
        ours, theirs = ours + near(case.spec, given), theirs + near(case.spec, case.output)
    assert ours > 1.5 * theirs > 0
