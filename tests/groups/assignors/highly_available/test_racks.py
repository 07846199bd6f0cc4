"""What the highly available assignor makes of tags and racks, in groups that begin.

Tags come before evenness, as with Kafka's own rule (KIP-708): a standby goes where it shares least with the
copies that there are, and among those to who has least.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.tasks.groups import having

from konvene.groups.assignors.highly_available.assignor import assign
from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    Subtopology,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.racks import Racks, cost, each_task

Group = tuple[GroupSpec, TopologyDescriber]
TAGS = ("zone", "cluster")


@st.composite
def beginning(draw: st.DrawFn) -> Group:
    """Processes of one member each, who have nothing yet; some do not say a tag."""
    members = {}
    for number in range(draw(st.integers(2, 6))):
        said = {tag: draw(st.sampled_from(("", "1", "2", "3"))) for tag in TAGS}
        tags = {tag: value for tag, value in said.items() if value}
        members[f"m{number}"] = AssignmentMemberSpec(f"p{number}", client_tags=tags, reports_offsets=True)
    configs = AssignmentConfigs(draw(st.integers(1, 3)), TAGS[: draw(st.integers(1, 2))], 2)
    return GroupSpec(members, configs), TopologyDescriber({"0": Subtopology(draw(st.integers(1, 7)), True)})


def holders(given: GroupAssignment) -> dict[tuple[str, int], list[str]]:
    """Who has each task: the one that is active, then those that have standbys."""
    found = {task: [name] for name, mine in given.items() for task in each_task(mine.active)}
    for name, mine in given.items():
        for task in each_task(mine.standby):
            found[task].append(name)
    return found


def greedy(racks: Racks, members: list[str], has: list[str], wanted: int) -> Iterator[int]:
    """What copies share if each next one goes where it shares least, for every choice among equals."""
    free = {name: racks.clash(name, has) for name in members if name not in has}
    if not wanted or not free:
        yield 0
        return
    least = min(free.values())
    for name, clash in free.items():
        if clash == least:
            for more in greedy(racks, members, [*has, name], wanted - 1):
                yield clash + more


@whenever(beginning())
def test_standbys_share_as_little_as_the_rule_can_make_them(group: Group) -> None:
    """Of each task by itself, held against all that the rule could have chosen. For one standby that is the
    least there is: a process on another value of every tag, if there is any."""
    spec, topology = group
    racks, members = Racks.of(spec, topology), list(spec.members)
    for active, *standbys in holders(assign(spec, topology)).values():
        shared = sum(racks.clash(name, [active, *standbys[:at]]) for at, name in enumerate(standbys))
        assert shared <= max(greedy(racks, members, [active], spec.configs.num_standby_replicas))


@whenever(beginning())
def test_tags_do_not_have_standbys_move_for_ever(group: Group) -> None:
    """Once it was followed, the answer is given again."""
    spec, topology = group
    made = assign(spec, topology)
    assert assign(having(spec, made), topology) == made


def test_active_tasks_are_near_what_they_read_where_that_makes_nobody_fuller() -> None:
    """Four tasks in two racks, two members in each; a fifth rack's tasks may be anywhere."""
    racks = tuple(frozenset({rack}) for rack in ("r1", "r2", "r2", "r1", "far"))
    topology = TopologyDescriber({"0": Subtopology(5, True, racks)})
    members = {f"m{n}": AssignmentMemberSpec(f"p{n}", rack_id=f"r{1 + n % 2}") for n in range(4)}
    spec = GroupSpec(members, AssignmentConfigs(1, (), 2))
    made = assign(spec, topology)
    assert sorted(sum(map(len, mine.active.values())) for mine in made.values()) == [1, 1, 1, 2]
    assert cost(spec, topology, made).actives_outside == 1
