"""The sticky assignor compared with Kafka 4.4.0's, task by task; and its use of reported state."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.golden import kafkas_members
from tests.groups.assignors.tasks.golden import Case, cases, figures, owners
from tests.groups.assignors.tasks.groups import having, with_member, without

from konvene.groups.assignors.sticky import assignor
from konvene.groups.assignors.sticky.queue import Queue
from konvene.groups.assignors.tasks.contract import (
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    TopologyDescriber,
)
from konvene.groups.java_hash_map import compute_if_absent_order, hash_map_order

FOUR = TopologyDescriber({"0": Subtopology(4, True)})


@pytest.mark.parametrize("case", cases(), ids=repr)
def test_the_assignment_is_kafkas(case: Case) -> None:
    """The same tasks for the same members, in all four hundred cases."""
    assert assignor.assign(case.spec, case.topology) == case.output


@pytest.mark.parametrize("case", cases(), ids=repr)
def test_the_measures_are_kafkas(case: Case) -> None:
    """Moves, balance of members and processes, standbys: as measured when the cases were recorded."""
    measured = figures(case.spec, case.topology, assignor.assign(case.spec, case.topology))
    assert measured == {name: case.figures[name] for name in measured}
    assert measured["sameTaskTwiceOnProcess"] == 0


# State on disks ---------------------------------------------------------------------------------


def test_restarted_application_gets_its_state_back() -> None:
    """New member ids, no assignment: the state on each disk decides, then the number of tasks."""
    offsets = {"a": {0: 10}, "b": {3: 10, 1: 10}, "c": {}}
    members = {
        name: AssignmentMemberSpec(name, task_offsets={"0": of} if of else {}) for name, of in offsets.items()
    }
    given = assignor.assign(GroupSpec(members), FOUR)
    assert given == {
        "a": MemberAssignment({"0": (0,)}),
        "b": MemberAssignment({"0": (1, 3)}),
        "c": MemberAssignment({"0": (2,)}),
    }


def test_the_member_with_the_least_lag_comes_first() -> None:
    members = {
        name: AssignmentMemberSpec(name, task_offsets={"0": {0: offset}})
        for name, offset in (("a", 5), ("b", 7), ("c", 6))
    }
    one = TopologyDescriber({"0": Subtopology(1, True)})
    given = assignor.assign(GroupSpec(members, AssignmentConfigs(1)), one)
    assert given["b"].active == given["c"].standby == {"0": (0,)}
    assert given["a"] == MemberAssignment()


def test_standby_comes_before_state_that_is_only_reported() -> None:
    """Whatever its offset: the report may be old."""
    members = {
        "a": AssignmentMemberSpec("a", task_offsets={"0": {0: 1_000}}),
        "b": AssignmentMemberSpec("b", MemberAssignment({}, {"0": (0,)})),
    }
    one = TopologyDescriber({"0": Subtopology(1, True)})
    assert owners(assignor.assign(GroupSpec(members), one)) == {("0", 0): "b"}


def test_state_on_the_tasks_own_process_is_no_reason_for_a_copy() -> None:
    """Another member of the process reports the state: it is the same disk."""
    members = {
        "a": AssignmentMemberSpec("p", MemberAssignment({"0": (0,)}), task_offsets={"0": {0: 9}}),
        "b": AssignmentMemberSpec("p", task_offsets={"0": {0: 9}}),
        "c": AssignmentMemberSpec("q"),
    }
    one = TopologyDescriber({"0": Subtopology(1, True)})
    given = assignor.assign(GroupSpec(members, AssignmentConfigs(1)), one)
    assert given["a"].active == given["c"].standby == {"0": (0,)}
    assert given["b"] == MemberAssignment()


def test_offsets_of_missing_tasks_are_ignored() -> None:
    offsets = {"9": {0: 1}, "0": {4: 1, -1: 1, 2: 1}}
    members = {"a": AssignmentMemberSpec("a"), "b": AssignmentMemberSpec("b", task_offsets=offsets)}
    given = assignor.assign(GroupSpec(members), FOUR)
    assert 2 in given["b"].active["0"]
    assert sorted(owners(given)) == [("0", p) for p in range(4)]


def test_death_of_a_process_makes_its_standbys_active_as_far_as_shares_allow() -> None:
    """Three standbys were on one of the others and one on the other; each may take two more tasks."""
    members = {name: AssignmentMemberSpec(name) for name in "abc"}
    spec = GroupSpec(members, AssignmentConfigs(1))
    topology = TopologyDescriber({"0": Subtopology(12, True)})
    given = assignor.assign(spec, topology)
    after = assignor.assign(without(having(spec, given), "a"), topology)
    lost = {name: set(given["a"].active["0"]) & set(given[name].standby["0"]) for name in "bc"}
    more = {name: set(after[name].active["0"]) - set(given[name].active["0"]) for name in "bc"}
    assert sorted(map(len, lost.values())) == [1, 3]
    assert sorted(len(lost[name] & more[name]) for name in "bc") == [1, 2]
    for name in "bc":
        assert set(given[name].active["0"]) <= set(after[name].active["0"])
        assert len(after[name].active["0"]) == len(after[name].standby["0"]) == 6


def test_large_group_is_level_and_a_new_member_takes_only_its_share() -> None:
    members = {f"member{n}": AssignmentMemberSpec(f"process{n // 3}") for n in range(300)}
    spec = GroupSpec(members, AssignmentConfigs(1))
    topology = TopologyDescriber({str(n): Subtopology(30, n % 2 == 0) for n in range(40)})
    given = assignor.assign(spec, topology)
    assert {len(tasks) for tasks in _by_member(given)} == {4}
    joined = with_member(having(spec, given), "new", AssignmentMemberSpec("new"))
    after = assignor.assign(joined, topology)
    moves = [task for task, name in owners(after).items() if owners(given)[task] != name]
    assert {owners(after)[task] for task in moves} == {"new"}
    assert len(moves) == len(_by_member(after)[-1]) == 3


def _by_member(given: GroupAssignment) -> list[list[tuple[str, int]]]:
    has = owners(given)
    return [[task for task, owner in has.items() if owner == name] for name in given]


# The order of things in Kafka ---------------------------------------------------------------------


@whenever(st.lists(st.text("ab\xe9\uffff\U0001f600", max_size=300), unique=True, max_size=40))
def test_order_of_members_is_that_of_a_hash_map(names: list[str]) -> None:
    assert hash_map_order(names) == kafkas_members(names)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["a"], "a"),
        (["b", "a"], "ba"),  # a table for two: 98 and 97 are 0 and 1
        (["a", "b", "c", "d"], "dabc"),  # for four; it would grow before a fifth call, not after the fourth
        (["a", "b", "c", "d", "a"], "abcd"),  # made for five, it has eight places
        (["a", "i", "q"], "qia"),  # all in one place: the last one first
    ],
)
def test_order_of_processes_is_that_of_a_map_that_computes_what_is_absent(
    names: Sequence[str], order: str
) -> None:
    assert "".join(compute_if_absent_order(names)) == order


@whenever(st.integers(1, 40), st.integers(0, 3), st.sampled_from([0.0, 0.02, 0.3]), st.randoms())
def test_queue_serves_as_javas(size: int, loads: int, skips: float, chance: random.Random) -> None:
    """A batch that is served at once equals taking each from the heap and adding it again."""
    load = [chance.randint(0, loads) for _ in range(size)]
    order = chance.sample(range(size), size)
    queue, heap = Queue(order, load), _Heap(order, list(load))
    for _ in range(100):
        if chance.random() < skips:
            count = chance.randint(1, min(size, 4))
            passed = [queue.skip() for _ in range(count)]
            assert passed == [heap.poll() for _ in range(count)]
            load[passed[-1]] += 1
            heap.load[passed[-1]] += 1
            for number in reversed(passed):
                queue.push(number)
                heap.add(number)
        else:
            first = queue.first()
            assert first == heap.poll()
            load[first] += 1
            heap.load[first] += 1
            queue.on_served()
            heap.add(first)
    assert len(queue) == size
    assert repr(queue).startswith(f"Queue({size} numbers, ")


class _Heap:
    """Java's `PriorityQueue`: its heap rules, exchange by exchange."""

    def __init__(self, numbers: Sequence[int], load: list[int]) -> None:
        self.load = load
        self.row: list[int] = []
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        self.row.append(number)
        at = len(self.row) - 1
        while at and self._weight(at) < self._weight((at - 1) // 2):
            self._exchange(at, (at - 1) // 2)
            at = (at - 1) // 2

    def poll(self) -> int:
        self._exchange(0, len(self.row) - 1)
        number = self.row.pop()
        at = 0
        while below := [child for child in (2 * at + 1, 2 * at + 2) if child < len(self.row)]:
            child = min(below, key=self._weight)
            if self._weight(at) <= self._weight(child):
                break
            self._exchange(at, child)
            at = child
        return number

    def _weight(self, at: int) -> int:
        return self.load[self.row[at]]

    def _exchange(self, one: int, other: int) -> None:
        self.row[one], self.row[other] = self.row[other], self.row[one]
