"""What holds for every assignor of share groups, and what `spread` promises besides."""

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

BETTER_ON_THE_SECOND_LOOK = {45}
"""Here one of several at a partition finds that another one, as full, is nearer."""

each_one = pytest.mark.parametrize("assignor", SHARE_ASSIGNORS.values(), ids=lambda row: row.name)


def drawn(chance: random.Random, alike: bool) -> GroupSpec:
    """Any group: some partitions may not be given out, some were held by several."""
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
def test_an_answer_is_whole_and_allowed(assignor, seed: int) -> None:  # type: ignore[no-untyped-def]
    """Everybody is in it; who reads a topic has of it what may be given out; every partition has a member;
    nobody idles who could read; the order of members plays no part."""
    chance = random.Random(seed)
    spec = drawn(chance, alike=seed % 2 == 0)
    given = assignor.assign(spec)
    assert given.keys() == spec.members.keys()
    may = set(units_of(spec, spec.topics))
    for name, mine in given.items():
        assert units(mine) <= {u for u in may if u[0] in spec.members[name].subscribed}
        assert all(some and list(some) == sorted(set(some)) for some in mine.values())
    read = {topic for member in spec.members.values() for topic in member.subscribed}
    assert {u for mine in given.values() for u in units(mine)} == {u for u in may if u[0] in read}
    for name, mine in given.items():
        assert mine or not {u for u in may if u[0] in spec.members[name].subscribed}
    turned = GroupSpec.of(dict(reversed(spec.members.items())), dict(reversed(spec.topics.items())))
    assert assignor.assign(turned) == given


def test_the_assignors_are_those_that_may_be_set() -> None:
    """By their names, and `simple` by those of Kafka's class."""
    ours = {name for name in checks.SHARE_ASSIGNORS if "." not in name}
    assert ours == set(SHARE_ASSIGNORS)
    for name in sorted(checks.SHARE_ASSIGNORS):
        config, _ = BrokerConfig.load(overrides=[("group.share.assignors", name)])
        expected = name if name in ours else "simple"
        assert assignor_of(Context(0, config)).name == expected
    with pytest.raises(ConfigError, match=r"must be simple or spread"):
        BrokerConfig.load(overrides=[("group.share.assignors", "made.Up")])


@each_one
def test_a_topic_that_is_not_there_is_an_error(assignor) -> None:  # type: ignore[no-untyped-def]
    spec = GroupSpec.of({"m": MemberSpec(frozenset(TOPICS))}, {})
    with pytest.raises(PartitionAssignorError, match="doesn't exist"):
        assignor.assign(spec)


@pytest.mark.parametrize("seed", range(100))
def test_spread_is_even_and_has_nobody_more_at_a_partition_than_it_must(seed: int) -> None:
    chance = random.Random(seed)
    spec = drawn(chance, alike=True)
    given = SPREAD.assign(spec)
    found = sizes(given)
    assert max(found) - min(found) <= 1
    held = Counter(u for mine in given.values() for u in units(mine))
    if len(held) >= len(given):
        assert set(held.values()) <= {1}
    elif held:
        assert max(held.values()) - min(held.values()) <= 1
        assert found == [1] * len(given)
    simple = SHARE_ASSIGNORS["simple"].assign(spec)
    assert sum(found) <= sum(sizes(simple))


@pytest.mark.parametrize("seed", range(100))
def test_spread_moves_nothing_by_itself(seed: int) -> None:
    """Unless it finds something better on the second look, which is seldom; soon it finds nothing more."""
    spec = drawn(random.Random(seed), alike=seed % 2 == 0)
    answers = [SPREAD.assign(spec)]
    for _ in range(3):
        before = answers[-1]
        had = {
            name: MemberSpec(of.subscribed, before[name], None, of.rack_id)
            for name, of in spec.members.items()
        }
        answers.append(SPREAD.assign(GroupSpec.of(had, spec.topics)))
    assert answers[2] == answers[3]
    assert (answers[0] == answers[1]) == (seed not in BETTER_ON_THE_SECOND_LOOK)
    assert all(answers[3][name] is answers[2][name] for name in spec.members if answers[2][name])


def test_spread_is_near_where_that_costs_nothing() -> None:
    racks = tuple(frozenset((RACKS[p % 2],)) for p in range(6))
    reads = frozenset(TOPICS[:1])
    members = {f"m{i}": MemberSpec(reads, {}, None, RACKS[i]) for i in range(2)}
    given = SPREAD.assign(GroupSpec.of(members, {TOPICS[0]: TopicSpec(6, racks)}))
    assert given == {"m0": {TOPICS[0]: (0, 2, 4)}, "m1": {TOPICS[0]: (1, 3, 5)}}


def test_spread_looks_at_all_topics_together() -> None:
    """Three who read different topics: `simple` gives the first of each to one of them."""
    a, b, c = TOPICS[:3]
    members = {
        "m0": MemberSpec(frozenset((a, b))),
        "m1": MemberSpec(frozenset((b, c))),
        "m2": MemberSpec(frozenset((a, c))),
    }
    given = SPREAD.assign(GroupSpec.of(members, {t: TopicSpec(3) for t in (a, b, c)}))
    assert sizes(given) == [3, 3, 3]
