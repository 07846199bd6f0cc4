"""The contract of every share group assignor, and the additional guarantees of `spread`."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.groups.assignors.golden import sizes, units

from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig, ConfigError, checks
from konvene.groups.assignors import GroupSpec, MemberSpec, PartitionAssignorError, TopicSpec
from konvene.groups.assignors.share.simple import units_of
from konvene.groups.assignors.share.table import SHARE_ASSIGNORS, assignor_of
from konvene.shard.contract import Context

TOPICS = tuple(Uuid(f"topic-{i}".encode().ljust(16, b".")) for i in range(4))
RACKS = ("east", "west")
SPREAD = SHARE_ASSIGNORS["spread"]

IMPROVED_BY_A_SECOND_RUN = {45}
"""Seeds for which a second run improves the assignment: a member of a shared partition moves to one in its
rack."""

each_one = pytest.mark.parametrize("assignor", SHARE_ASSIGNORS.values(), ids=lambda row: row.name)


def random_group(chance: random.Random, alike: bool) -> GroupSpec:
    """Return a random group: some partitions may not be assignable, some were held by several members."""
    topics: dict[Uuid, TopicSpec] = {}
    for topic in TOPICS[: chance.randint(1, 4)]:
        count = chance.randint(0, 9)
        assignable = tuple(p for p in range(count) if chance.random() < 0.8)
        racks = tuple(frozenset(chance.sample(RACKS, 1)) for _ in range(count))
        topics[topic] = TopicSpec(count, racks, assignable if chance.random() < 0.5 else None)
    all_read = frozenset(topics)
    members: dict[str, MemberSpec] = {}
    for i in range(chance.randint(1, 12)):
        reads = all_read if alike else frozenset(t for t in topics if chance.random() < 0.6)
        had = {t: tuple(p for p in range(topics[t].partitions + 1) if chance.random() < 0.3) for t in topics}
        members[f"m{i}"] = MemberSpec(reads, had, None, chance.choice((None, *RACKS)))
    return GroupSpec.of(members, topics)


@each_one
@pytest.mark.parametrize("seed", range(100))
def test_an_assignment_is_complete_and_valid(assignor, seed: int) -> None:  # type: ignore[no-untyped-def]
    """Every member is in it; a subscriber gets only assignable partitions of its topics; every partition has
    a member; no member is idle that could have a partition; the order of members plays no part."""
    chance = random.Random(seed)
    spec = random_group(chance, alike=seed % 2 == 0)
    assignment = assignor.assign(spec)
    assert assignment.keys() == spec.members.keys()
    assignable = set(units_of(spec, spec.topics))
    for name, mine in assignment.items():
        assert units(mine) <= {u for u in assignable if u[0] in spec.members[name].subscribed}
        assert all(some and list(some) == sorted(set(some)) for some in mine.values())
    read = {topic for member in spec.members.values() for topic in member.subscribed}
    assert {u for mine in assignment.values() for u in units(mine)} == {u for u in assignable if u[0] in read}
    for name, mine in assignment.items():
        assert mine or not {u for u in assignable if u[0] in spec.members[name].subscribed}
    reversed_spec = GroupSpec.of(dict(reversed(spec.members.items())), dict(reversed(spec.topics.items())))
    assert assignor.assign(reversed_spec) == assignment


def test_the_configurable_assignors_are_the_available_ones() -> None:
    """By their names, and `simple` also by the name of Kafka's class."""
    ours = {name for name in checks.SHARE_ASSIGNORS if "." not in name}
    assert ours == set(SHARE_ASSIGNORS)
    for name in sorted(checks.SHARE_ASSIGNORS):
        config, _ = BrokerConfig.load(overrides=[("group.share.assignors", name)])
        expected = name if name in ours else "simple"
        assert assignor_of(Context(0, config)).name == expected
    with pytest.raises(ConfigError, match=r"must be simple or spread"):
        BrokerConfig.load(overrides=[("group.share.assignors", "made.Up")])


@each_one
def test_a_missing_topic_is_an_error(assignor) -> None:  # type: ignore[no-untyped-def]
    spec = GroupSpec.of({"m": MemberSpec(frozenset(TOPICS))}, {})
    with pytest.raises(PartitionAssignorError, match="doesn't exist"):
        assignor.assign(spec)


@pytest.mark.parametrize("seed", range(100))
def test_spread_balances_members_and_partitions(seed: int) -> None:
    chance = random.Random(seed)
    spec = random_group(chance, alike=True)
    assignment = SPREAD.assign(spec)
    found = sizes(assignment)
    assert max(found) - min(found) <= 1
    held = Counter(u for mine in assignment.values() for u in units(mine))
    if len(held) >= len(assignment):
        assert set(held.values()) <= {1}
    elif held:
        assert max(held.values()) - min(held.values()) <= 1
        assert found == [1] * len(assignment)
    simple = SHARE_ASSIGNORS["simple"].assign(spec)
    assert sum(found) <= sum(sizes(simple))


@pytest.mark.parametrize("seed", range(100))
def test_spread_is_stable(seed: int) -> None:
    """Unless a second run improves the assignment, which is rare; a third run changes nothing."""
    spec = random_group(random.Random(seed), alike=seed % 2 == 0)
    assignments = [SPREAD.assign(spec)]
    for _ in range(3):
        before = assignments[-1]
        had = {
            name: MemberSpec(of.subscribed, before[name], None, of.rack_id)
            for name, of in spec.members.items()
        }
        assignments.append(SPREAD.assign(GroupSpec.of(had, spec.topics)))
    assert assignments[2] == assignments[3]
    assert (assignments[0] == assignments[1]) == (seed not in IMPROVED_BY_A_SECOND_RUN)
    assert all(assignments[3][name] is assignments[2][name] for name in spec.members if assignments[2][name])


def test_spread_prefers_the_members_rack() -> None:
    racks = tuple(frozenset((RACKS[p % 2],)) for p in range(6))
    reads = frozenset(TOPICS[:1])
    members = {f"m{i}": MemberSpec(reads, {}, None, RACKS[i]) for i in range(2)}
    assignment = SPREAD.assign(GroupSpec.of(members, {TOPICS[0]: TopicSpec(6, racks)}))
    assert assignment == {"m0": {TOPICS[0]: (0, 2, 4)}, "m1": {TOPICS[0]: (1, 3, 5)}}


def test_spread_balances_across_topics() -> None:
    """Three members with different topics: `simple` gives the first partition of each topic to one of
    them."""
    a, b, c = TOPICS[:3]
    members = {
        "m0": MemberSpec(frozenset((a, b))),
        "m1": MemberSpec(frozenset((b, c))),
        "m2": MemberSpec(frozenset((a, c))),
    }
    assignment = SPREAD.assign(GroupSpec.of(members, {t: TopicSpec(3) for t in (a, b, c)}))
    assert sizes(assignment) == [3, 3, 3]
