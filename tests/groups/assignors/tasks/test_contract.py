"""The contract of every task assignor. A new row of `TASK_ASSIGNORS` is tested against all of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.tasks.golden import (
    Task,
    actives,
    moved,
    on_processes,
    owners,
    spread,
    tasks,
    wanted_standbys,
)
from tests.groups.assignors.tasks.groups import (
    anew,
    groups,
    having,
    shuffled,
    topologies,
    with_member,
    without,
)

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import (
    NOTHING,
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TaskAssignor,
    TaskAssignorError,
    TopologyDescriber,
    checked,
)
from konvene.groups.streams.assignors import TASK_ASSIGNORS

every = pytest.mark.parametrize("assignor", TASK_ASSIGNORS.values(), ids=TASK_ASSIGNORS)
Group = tuple[GroupSpec, TopologyDescriber]
NEW = "\uffffnew"
SHARE_BY_STATE = ("highly_available",)


def test_table_begins_with_kafkas_default() -> None:
    assert next(iter(TASK_ASSIGNORS)) == "sticky"
    assert all(row.name == name for name, row in TASK_ASSIGNORS.items())


@every
@whenever(groups())
def test_every_task_has_one_owner_and_its_standbys_are_on_other_processes(
    assignor: TaskAssignor, group: Group
) -> None:
    """As many standbys as configured, or one on each other process; none of stateless tasks."""
    spec, topology = group
    given = assignor.assign(spec, topology)
    expected = Counter((name, p) for name, of in topology.subtopologies.items() for p in range(of.partitions))
    processes = len({of.process_id for of in spec.members.values()})
    standbys = Counter({t: min(n, processes - 1) for t, n in wanted_standbys(spec, topology).items()})
    assert given.keys() == spec.members.keys()
    assert expected == Counter(task for mine in given.values() for task in tasks(mine.active))
    assert +standbys == Counter(task for mine in given.values() for task in tasks(mine.standby))
    assert set(on_processes(spec, given).values()) <= {1}
    assert checked(spec, topology, given) == given


@every
@whenever(groups())
def test_values_follow_the_contract(assignor: TaskAssignor, group: Group) -> None:
    """Sorted tuples, no empty entries, no warm-ups."""
    for mine in assignor.assign(*group).values():
        assert not mine.warmup
        for role in (mine.active, mine.standby):
            assert all(type(some) is tuple and some == tuple(sorted(some)) and some for some in role.values())


@every
def test_empty_groups_and_topologies(assignor: TaskAssignor) -> None:
    """No subtopologies, no partitions; and no members, which is an error if there are tasks."""
    nothing, empty = TopologyDescriber({}), TopologyDescriber({"0": Subtopology(0, True)})
    for configs in (AssignmentConfigs(), AssignmentConfigs(2)):
        one = GroupSpec({"a": AssignmentMemberSpec("p")}, configs)
        assert assignor.assign(one, nothing) == {"a": NOTHING}
        assert assignor.assign(one, empty) == {"a": NOTHING}
        assert assignor.assign(GroupSpec({}, configs), empty) == {}
        with pytest.raises(TaskAssignorError) as raised:
            assignor.assign(GroupSpec({}, configs), TopologyDescriber({"0": Subtopology(1)}))
        assert raised.value.error is Errors.UNKNOWN_SERVER_ERROR


@every
@whenever(groups(), st.integers())
def test_order_of_maps_does_not_matter(assignor: TaskAssignor, group: Group, seed: int) -> None:
    given, other = assignor.assign(*group), assignor.assign(*shuffled(*group, seed))
    assert given == other
    assert list(given) == list(other)


HASHED = """
import sys
from tests.groups.assignors.tasks.groups import *
from konvene.groups.streams.assignors import TASK_ASSIGNORS
assign = TASK_ASSIGNORS[sys.argv[1]].assign
for size in range(2, 40):
    topology = TopologyDescriber({f"s{n}": Subtopology(n, n % 3 > 0) for n in range(12)})
    members = {f"m{n}": AssignmentMemberSpec(f"p{n * n % size}") for n in range(size)}
    spec = GroupSpec(members, AssignmentConfigs(size % 3))
    first = assign(spec, topology)
    for given in (first, assign(without(having(spec, first), "m1"), topology)):
        print({name: (dict(mine.active), dict(mine.standby)) for name, mine in given.items()})
"""


@every
def test_hash_seed_does_not_matter(assignor: TaskAssignor) -> None:
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
def test_unchanged_assignments_are_the_same_values(assignor: TaskAssignor, group: Group) -> None:
    spec, topology = group
    for name, mine in assignor.assign(spec, topology).items():
        had = spec.members[name].assigned
        assert (mine is had) == (mine == had) or mine == NOTHING
        assert (mine.active is had.active) == (mine.active == had.active) or not mine.active
        assert (mine.standby is had.standby) == (mine.standby == had.standby) or not mine.standby


# A group that began with nothing: balanced, and sticky ------------------------------------------------


@every
@whenever(groups())
def test_actives_of_a_new_group_differ_by_one(assignor: TaskAssignor, group: Group) -> None:
    spec, topology = anew(group[0]), group[1]
    assert spread(actives(assignor.assign(spec, topology))) <= 1


@every
@whenever(groups())
def test_unchanged_group_moves_no_active(assignor: TaskAssignor, group: Group) -> None:
    spec, topology = anew(group[0]), group[1]
    given = assignor.assign(spec, topology)
    assert owners(assignor.assign(having(spec, given), topology)) == owners(given)


@every
@whenever(groups())
def test_new_process_takes_its_share_of_actives_and_no_other_moves(
    assignor: TaskAssignor, group: Group
) -> None:
    """Not guaranteed for a new member of an existing process: processes are weighed as a whole."""
    spec, topology = anew(group[0]), group[1]
    given = assignor.assign(spec, topology)
    joined = with_member(having(spec, given), NEW, AssignmentMemberSpec("another"))
    after = assignor.assign(joined, topology)
    moves = _that_stay(assignor, topology, moved(joined, after))
    assert {owners(after)[task] for task in moves} <= {NEW}
    assert spread(actives(after)) <= 1


@every
@whenever(groups(), st.data())
def test_only_a_departed_members_tasks_move(
    assignor: TaskAssignor, group: Group, data: st.DataObject
) -> None:
    spec, topology = anew(group[0]), group[1]
    given = assignor.assign(spec, topology)
    leaver = data.draw(st.sampled_from(sorted(spec.members)))
    left = without(having(spec, given), *_leaving(assignor, spec, leaver))
    if left.members:
        after = assignor.assign(left, topology)
        moves = _that_stay(assignor, topology, moved(left, after))
        assert [task for task in moves if task not in _warm(assignor, left, owners(after)[task])] == []


@every
@whenever(topologies())
def test_standbys_of_a_process_that_died_become_active(
    assignor: TaskAssignor, topology: TopologyDescriber
) -> None:
    """Beside a new process without state: the one with state takes no task without state for it."""
    both = {"dies": AssignmentMemberSpec("p"), "stays": AssignmentMemberSpec("q")}
    spec = GroupSpec(both, AssignmentConfigs(num_standby_replicas=1))
    given = assignor.assign(spec, topology)
    stays = with_member(without(having(spec, given), "dies"), NEW, AssignmentMemberSpec("r"))
    after = assignor.assign(stays, topology)
    taken = set(tasks(after["stays"].active)) - set(tasks(given["stays"].active))
    copied = set(tasks(given["stays"].standby))
    stateless = {task for task in taken if not topology.is_stateful(task[0])}
    assert taken - stateless <= copied
    kept = _that_stay(assignor, topology, tasks(given["stays"].active))
    assert set(kept) <= set(tasks(after["stays"].active))


def _that_stay(assignor: TaskAssignor, topology: TopologyDescriber, some: list[Task]) -> list[Task]:
    """Return the tasks that do not move without need: some assignors distribute stateful tasks evenly, and
    stateless ones around them."""
    by_state = assignor.name in SHARE_BY_STATE
    return [task for task in some if topology.is_stateful(task[0]) or not by_state]


def _warm(assignor: TaskAssignor, spec: GroupSpec, member: str) -> set[Task]:
    """Return the tasks that may move to a member because its process had a standby: some assignors prefer
    that to moving a task without one."""
    if assignor.name not in SHARE_BY_STATE:
        return set()
    process = spec.members[member].process_id
    return {t for of in spec.members.values() if of.process_id == process for t in tasks(of.assigned.standby)}


def _leaving(assignor: TaskAssignor, spec: GroupSpec, leaver: str) -> list[str]:
    """Return the members that leave together: the whole process if the assignor weighs processes, since a
    process that loses a member is to have less."""
    process = spec.members[leaver].process_id
    by_process = assignor.name in SHARE_BY_STATE
    return [n for n, of in spec.members.items() if n == leaver or (by_process and of.process_id == process)]


# Validation of results -----------------------------------------------------------------------------------


SPEC = GroupSpec({"ann": AssignmentMemberSpec("p"), "bob": AssignmentMemberSpec("p")})
TOPOLOGY = TopologyDescriber({"0": Subtopology(2, True), "1": Subtopology(1)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cid": NOTHING}, "An assignment for cid, which is not a member."),
        ({"ann": MemberAssignment({"2": (0,)})}, "ann is given active task 2_0, which does not exist."),
        ({"ann": MemberAssignment({"0": (2,)})}, "ann is given active task 0_2, which does not exist."),
        ({"ann": MemberAssignment({"0": (-1,)})}, "ann is given active task 0_-1, which does not exist."),
        (
            {"ann": MemberAssignment({}, {"1": (0,)})},
            "ann is given standby task 1_0, which has no state.",
        ),
        (
            {"ann": MemberAssignment({}, {}, {"1": (0,)})},
            "ann is given warm-up task 1_0, which has no state.",
        ),
        (
            {"ann": MemberAssignment({"1": (0,)}), "bob": MemberAssignment({"1": (0,)})},
            "bob is given active task 1_0, which another has as well.",
        ),
        (
            {"ann": MemberAssignment({"0": (0,)}), "bob": MemberAssignment({}, {"0": (0,)})},
            "bob is given standby task 0_0, which its process has already.",
        ),
        (
            {"ann": MemberAssignment({"0": (0,)}, {}, {"0": (0,)})},
            "ann is given warm-up task 0_0, which its process has already.",
        ),
    ],
)
def test_invalid_results_are_errors(given: dict[str, MemberAssignment], message: str) -> None:
    with pytest.raises(TaskAssignorError, match=f"^{message}$"):
        checked(SPEC, TOPOLOGY, given)


def test_a_valid_result_is_normalized() -> None:
    """Tasks and members may be missing; partitions may come in any order and any iterable."""
    apart = GroupSpec(
        {"ann": AssignmentMemberSpec("p"), "bob": AssignmentMemberSpec("q"), "cid": SPEC.members["bob"]}
    )
    given = {"bob": MemberAssignment({"0": [1, 0], "1": ()}), "ann": MemberAssignment({}, {"0": {1}})}  # type: ignore[dict-item]
    assert list(checked(apart, TOPOLOGY, given).items()) == [
        ("ann", MemberAssignment({}, {"0": (1,)})),
        ("bob", MemberAssignment({"0": (0, 1)})),
        ("cid", NOTHING),
    ]


def test_the_topology_describes_its_subtopologies() -> None:
    assert TOPOLOGY.max_num_input_partitions("0") == 2
    assert TOPOLOGY.is_stateful("0")
    assert not TOPOLOGY.is_stateful("1")
    for ask in (TOPOLOGY.max_num_input_partitions, TOPOLOGY.is_stateful):
        with pytest.raises(KeyError):
            ask("2")
