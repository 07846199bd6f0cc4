"""Tags and racks in the highly available assignor, for groups without a former assignment.

Tags precede balance, as in Kafka's own rule (KIP-708): a standby goes where it shares the fewest tags with
the existing copies, and among those to the member with the fewest tasks.
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
    """Processes of one member each without tasks; some lack a tag."""
    members = {}
    for number in range(draw(st.integers(2, 6))):
        values = {tag: draw(st.sampled_from(("", "1", "2", "3"))) for tag in TAGS}
        tags = {tag: value for tag, value in values.items() if value}
        members[f"m{number}"] = AssignmentMemberSpec(f"p{number}", client_tags=tags, reports_offsets=True)
    configs = AssignmentConfigs(draw(st.integers(1, 3)), TAGS[: draw(st.integers(1, 2))], 2)
    return GroupSpec(members, configs), TopologyDescriber({"0": Subtopology(draw(st.integers(1, 7)), True)})


def holders(given: GroupAssignment) -> dict[tuple[str, int], list[str]]:
    """Return the members that have each task: the active one, then the standbys."""
    found = {task: [name] for name, mine in given.items() for task in each_task(mine.active)}
    for name, mine in given.items():
        for task in each_task(mine.standby):
            found[task].append(name)
    return found


def greedy(racks: Racks, members: list[str], has: list[str], wanted: int) -> Iterator[int]:
    """Yield the number of shared tags if each next copy goes where it shares least, for every choice among
    equals."""
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
def test_standbys_share_as_few_tags_as_the_rule_allows(group: Group) -> None:
    """For each task by itself, compared with every choice that the rule allows. For one standby that is the
    minimum: a process with another value of every tag, if there is one."""
    spec, topology = group
    racks, members = Racks.of(spec, topology), list(spec.members)
    for active, *standbys in holders(assign(spec, topology)).values():
        shared = sum(racks.clash(name, [active, *standbys[:at]]) for at, name in enumerate(standbys))
        assert shared <= max(greedy(racks, members, [active], spec.configs.num_standby_replicas))


@whenever(beginning())
def test_tags_do_not_move_standbys_for_ever(group: Group) -> None:
    """Once it is followed, the assignment is repeated."""
    spec, topology = group
    made = assign(spec, topology)
    assert assign(having(spec, made), topology) == made


def test_active_tasks_are_in_the_rack_of_their_sources_if_the_balance_allows() -> None:
    """Four tasks in two racks with two members each; the tasks of a fifth rack may be anywhere."""
    racks = tuple(frozenset({rack}) for rack in ("r1", "r2", "r2", "r1", "far"))
    topology = TopologyDescriber({"0": Subtopology(5, True, racks)})
    members = {f"m{n}": AssignmentMemberSpec(f"p{n}", rack_id=f"r{1 + n % 2}") for n in range(4)}
    spec = GroupSpec(members, AssignmentConfigs(1, (), 2))
    made = assign(spec, topology)
    assert sorted(sum(map(len, mine.active.values())) for mine in made.values()) == [1, 1, 1, 2]
    assert cost(spec, topology, made).actives_outside == 1
