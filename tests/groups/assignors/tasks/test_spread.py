"""The exchange of standbys after the assignor: loads stay, fewer tags are shared, state moves only for
that."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.tasks.groups import having, shuffled

from konvene.groups.assignors.sticky import assignor
from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TopologyDescriber,
    checked,
)
from konvene.groups.assignors.tasks.racks import Racks, cost, each_task
from konvene.groups.assignors.tasks.spread import spread

Group = tuple[GroupSpec, TopologyDescriber]
TAGS = ("zone", "cluster")


@st.composite
def tagged(draw: st.DrawFn) -> Group:
    """Processes of one or two members in few zones and clusters; some lack a tag. They may have a former
    assignment."""
    members = {}
    for process in range(draw(st.integers(1, 6))):
        values = {tag: draw(st.sampled_from(("", "1", "2", "3"))) for tag in TAGS}
        tags = {tag: value for tag, value in values.items() if value}
        for thread in range(draw(st.integers(1, 2))):
            members[f"m{process}{thread}"] = AssignmentMemberSpec(f"p{process}", client_tags=tags)
    configs = AssignmentConfigs(draw(st.integers(0, 3)), TAGS[: draw(st.integers(1, 2))])
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
    topology = TopologyDescriber(
        {str(n): Subtopology(size, draw(st.booleans())) for n, size in enumerate(sizes)}
    )
    spec = GroupSpec(members, configs)
    if draw(st.booleans()):
        some = {name: of for name, of in members.items() if name != "m00" or len(members) == 1}
        had = assignor.assign(replace(spec, members=some), topology)
        spec = having(spec, {name: had.get(name, MemberAssignment()) for name in members})
    return spec, topology


def loads(given: GroupAssignment) -> dict[str, tuple[int, int]]:
    return {
        name: (sum(map(len, mine.active.values())), sum(map(len, mine.standby.values())))
        for name, mine in given.items()
    }


def total(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> int:
    """Return how many tags the copies of all tasks share: copies with a tag, minus their distinct values."""
    by_task: dict[tuple[str, int], list[AssignmentMemberSpec]] = {}
    for name, mine in given.items():
        for task in (*each_task(mine.active), *each_task(mine.standby)):
            by_task.setdefault(task, []).append(spec.members[name])
    found = 0
    for holders in by_task.values():
        for tag in spec.configs.rack_aware_assignment_tags:
            values = [of.client_tags[tag] for of in holders if tag in of.client_tags]
            found += len(values) - len(set(values))
    return found


def exchanged(spec: GroupSpec, given: GroupAssignment) -> list[GroupAssignment]:
    """Return all results of one exchange of standbys between two processes."""
    units = [(task, name) for name, mine in given.items() for task in each_task(mine.standby)]
    process = {name: of.process_id for name, of in spec.members.items()}
    at = {
        (process[name], task)
        for name, mine in given.items()
        for task in (*each_task(mine.active), *each_task(mine.standby))
    }
    found = []
    for (task, one), (other, two) in combinations(units, 2):
        if process[one] == process[two] or (process[two], task) in at or (process[one], other) in at:
            continue
        made = {name: set(each_task(mine.standby)) for name, mine in given.items()}
        made[one] = made[one] - {task} | {other}
        made[two] = made[two] - {other} | {task}
        found.append({name: replace(mine, standby=_tasks(made[name])) for name, mine in given.items()})
    return found


def _tasks(some: set[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    return {of: tuple(p for o, p in sorted(some) if o == of) for of in sorted({of for of, _ in some})}


@whenever(tagged())
def test_loads_stay_and_fewer_tags_are_shared(group: Group) -> None:
    """Active tasks stay with their members, standby counts stay, and every change improves the result."""
    spec, topology = group
    given = assignor.assign(spec, topology)
    made = spread(spec, topology, given)
    assert checked(spec, topology, made) == made
    assert loads(made) == loads(given)
    assert {name: mine.active for name, mine in made.items()} == {n: mine.active for n, mine in given.items()}
    assert made is given or total(spec, topology, made) < total(spec, topology, given)


@whenever(tagged())
def test_no_further_exchange_would_help(group: Group) -> None:
    """Compared with every possible exchange."""
    spec, topology = group
    made = spread(spec, topology, assignor.assign(spec, topology))
    shared = total(spec, topology, made)
    for other in exchanged(spec, made):
        assert total(spec, topology, other) >= shared


@whenever(tagged())
def test_the_result_is_stable(group: Group) -> None:
    """Repeated by the same pass, or by the assignor and the pass once followed: nothing moves again."""
    spec, topology = group
    made = spread(spec, topology, assignor.assign(spec, topology))
    assert spread(spec, topology, made) is made
    settled = having(spec, made)
    again = assignor.assign(settled, topology)
    if again == made:  # Else sticky itself would have moved something.
        assert spread(settled, topology, again) is again


@whenever(tagged(), st.integers(0, 99))
def test_equal_groups_have_equal_answers(group: Group, seed: int) -> None:
    spec, topology = group
    given = assignor.assign(spec, topology)
    other = dict(random.Random(seed).sample(list(given.items()), len(given)))
    assert spread(*shuffled(spec, topology, seed), other) == spread(spec, topology, given)


def zones(*where: str, standbys: int = 1) -> GroupSpec:
    members = {
        f"m{n}": AssignmentMemberSpec(f"p{n}", client_tags={"zone": zone}) for n, zone in enumerate(where)
    }
    return GroupSpec(members, AssignmentConfigs(standbys, ("zone",)))


def of(active: int, *standby: int) -> MemberAssignment:
    return MemberAssignment({"0": (active,)}, {"0": standby})


FOUR_TASKS = TopologyDescriber({"0": Subtopology(4, True)})


def test_two_zones_back_each_other_up() -> None:
    """Each zone has its own copies; one exchange per pair puts them into the other zone."""
    given = {"m0": of(0, 1), "m1": of(1, 0), "m2": of(2, 3), "m3": of(3, 2)}
    spec = zones("a", "a", "b", "b")
    made = spread(spec, FOUR_TASKS, given)
    assert cost(spec, FOUR_TASKS, given).tasks_apart == 0
    assert cost(spec, FOUR_TASKS, made).tasks_apart == 4


def test_standbys_with_state_are_exchanged_last() -> None:
    """m2 could give either standby for that of m1. It gives the one without state; with state of both it
    gives one nevertheless."""
    spec = zones("a", "a", "b", "c")
    given = {
        "m0": of(0),
        "m1": of(1, 0),
        "m2": MemberAssignment(standby={"0": (2, 3)}),
        "m3": MemberAssignment({"0": (2, 3)}, {"0": (1,)}),
    }
    for kept, exchanged_task in ((2, 3), (3, 2)):
        had = dict.fromkeys(given, MemberAssignment()) | {"m2": MemberAssignment(standby={"0": (kept,)})}
        made = spread(having(spec, had), FOUR_TASKS, given)
        assert made["m2"].standby == {"0": (0, kept)}
        assert made["m1"] == of(1, exchanged_task)
        assert made["m0"] is given["m0"] and made["m3"] is given["m3"]
    assert cost(spec, FOUR_TASKS, spread(having(spec, given), FOUR_TASKS, given)).tasks_apart == 4


def test_a_task_is_on_a_process_once() -> None:
    """m1 could give its standby of 0 for one of 1, which shares a zone in any case; but it runs 1."""
    spec = zones("a", "a", "b", "b", standbys=2)
    given = {
        "m0": of(0),
        "m1": of(1, 0),
        "m2": MemberAssignment(standby={"0": (1,)}),
        "m3": MemberAssignment(standby={"0": (1,)}),
    }
    assert spread(spec, FOUR_TASKS, given) is given


def test_an_exchange_may_make_room_for_another() -> None:
    """An exchange that did not help in the first round may help in the second: the rounds repeat until none
    does."""
    members = {
        f"m{n}": AssignmentMemberSpec(f"p{n}", client_tags=dict(zip(TAGS, where, strict=True)))
        for n, where in enumerate(("ba", "aa", "cb", "bb", "cb", "ba"))
    }
    spec = GroupSpec(members, AssignmentConfigs(1, TAGS))
    topology = TopologyDescriber({"0": Subtopology(5, True)})
    made = spread(spec, topology, assignor.assign(spec, topology))
    assert spread(spec, topology, made) is made


def test_an_optimal_assignment_is_unchanged() -> None:
    """The very same values: three copies in two zones have to share one."""
    given = assignor.assign(zones("a", "a", "b", "b", standbys=2), FOUR_TASKS)
    spec = zones("a", "a", "a", "a")
    assert spread(spec, FOUR_TASKS, given) is given
    untagged = replace(spec, configs=AssignmentConfigs(1))
    assert spread(untagged, FOUR_TASKS, given) is given
    hosts = zones("a", "b", "c", "d")
    assert spread(hosts, FOUR_TASKS, given) is given


def test_a_large_group_shares_no_zone() -> None:
    """Three zones of equal size, one standby: no two copies of any task are in one zone."""
    spec = zones(*("abc"[n % 3] for n in range(60)))
    topology = TopologyDescriber({"0": Subtopology(300, True), "1": Subtopology(300, True)})
    made = spread(spec, topology, assignor.assign(spec, topology))
    assert cost(spec, topology, made).pairs_sharing_all == 0
    assert cost(spec, topology, made).tasks_apart == 600
    for seed in range(3):
        assert spread(*shuffled(spec, topology, seed), assignor.assign(spec, topology)) == made
    racks = Racks.of(spec, topology)
    assert Counter(map(racks.class_of, spec.members)) == {0: 20, 1: 20, 2: 20}
