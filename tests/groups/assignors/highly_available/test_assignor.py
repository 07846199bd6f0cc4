"""The highly available assignor, sentence by sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.groups.assignors.highly_available.restoring import Restoring
from tests.groups.assignors.tasks.golden import tasks
from tests.groups.assignors.tasks.groups import shuffled, without

from konvene.groups.assignors.highly_available.assignor import assign
from konvene.groups.assignors.highly_available.indexed_group import IndexedGroup
from konvene.groups.assignors.highly_available.quotas import Balance, fair_quotas
from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Subtopology,
    Tasks,
    TopologyDescriber,
)

END = 100_000
Partitions = tuple[int, ...]


def of(*partitions: int) -> Tasks:
    return {"0": partitions} if partitions else NO_TASKS


def has(
    process: str,
    active: Partitions = (),
    standby: Partitions = (),
    warmup: Partitions = (),
    *,
    at: Mapping[int, int] | None = None,
    ends: bool = True,
) -> AssignmentMemberSpec:
    """A member that reports: what it runs is at the end, its copies are as far as told, and unknown else."""
    offsets = dict.fromkeys(active, END) | dict(at or {})
    owned = {*active, *standby, *warmup} & offsets.keys() if ends else set()
    return AssignmentMemberSpec(
        process, MemberAssignment(of(*active), of(*standby), of(*warmup)),
        task_offsets={"0": offsets} if offsets else {},
        task_end_offsets={"0": dict.fromkeys(sorted(owned), END)} if owned else {},
        reports_offsets=True,
    )  # fmt: skip


def silent(process: str, active: Partitions = (), standby: Partitions = ()) -> AssignmentMemberSpec:
    """One that does not say how far anything is."""
    return AssignmentMemberSpec(process, MemberAssignment(of(*active), of(*standby)))


def group(standbys: int = 0, warmups: int = 2, **members: AssignmentMemberSpec) -> GroupSpec:
    return GroupSpec(members, AssignmentConfigs(standbys, (), warmups))


def stateful(count: int) -> TopologyDescriber:
    return TopologyDescriber({"0": Subtopology(count, True)})


def told(given: GroupAssignment) -> dict[str, str]:
    """What each member has: active / standby / warm-up."""
    return {
        name: "/".join(
            "".join(f"{partition}" if sub == "0" else f"{sub}{partition}" for sub, partition in tasks(role))
            for role in (mine.active, mine.standby, mine.warmup)
        )
        for name, mine in given.items()
    }


def answer(spec: GroupSpec, count: int) -> dict[str, str]:
    return told(assign(spec, stateful(count)))


# Scale-out ----------------------------------------------------------------------------------------------


def test_new_process_warms_up_before_it_takes_over() -> None:
    """It is to have three of six; two may warm up at a time, and nothing moves yet."""
    spec = group(a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q"))
    assert answer(spec, 6) == {"a": "012345//", "b": "//01"}


def test_who_has_caught_up_takes_over_at_once_and_the_next_ones_warm_up() -> None:
    spec = group(a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q", warmup=(0, 1), at={0: END - 10_000, 1: 5}))
    assert answer(spec, 6) == {"a": "12345//", "b": "0//12"}


def test_only_so_many_warm_up_at_a_time() -> None:
    full = has("p", tuple(range(9)))
    for budget, warm in ((1, "0"), (2, "01"), (3, "012"), (8, "0123")):
        assert answer(group(0, budget, a=full, b=has("q")), 9)["b"] == f"//{warm}"


def test_where_nothing_may_warm_up_nobody_is_waited_for() -> None:
    assert answer(group(0, 0, a=has("p", (0, 1, 2, 3)), b=has("q")), 4) == {"a": "23//", "b": "01//"}


@pytest.mark.parametrize("standbys", [0, 1, 2])
def test_from_one_process_to_two_to_four(standbys: int) -> None:
    """Each time it ends with equal shares, and with copies on as many processes as there should be."""
    life = Restoring(stateful(12), AssignmentConfigs(standbys, (), 2))
    life.join("a", "a")
    life.settle(within=3)
    assert [len(tasks(mine.active)) for mine in life.given.values()] == [12]
    for more, each in (("b", 6), ("cd", 3)):
        for name in more:
            life.join(name, name)
        life.settle(within=12 * (1 + standbys) + 3)
        for mine in life.given.values():
            assert len(tasks(mine.active)) == each
            assert len(tasks(mine.standby)) == each * min(standbys, 12 // each - 1)
            assert not mine.warmup


def test_a_plan_is_kept_while_others_come_nearer() -> None:
    """What warms up goes on, though another copy is further by now."""
    both = {"a": has("p", (0, 1, 2, 3)), "b": has("q", warmup=(3,), at={3: 7, 0: 80_000})}
    assert answer(group(0, 1, **both), 4) == {"a": "0123//", "b": "//3"}


def test_a_plan_ends_when_its_destination_dies() -> None:
    """And who comes instead begins another one."""
    both = group(a=has("p", (0, 1, 2, 3)), b=has("q", warmup=(2, 3), at={2: 7}), c=has("r"))
    assert answer(both, 4) == {"a": "0123//", "b": "//2", "c": "//0"}
    assert answer(without(both, "b"), 4) == {"a": "0123//", "c": "//01"}


def test_a_plan_ends_when_it_is_of_no_use() -> None:
    """Its destination has its share already."""
    spec = group(a=has("p", (0, 1)), b=has("q", (2, 3), warmup=(1,), at={1: 50_000}))
    assert answer(spec, 4) == {"a": "01//", "b": "23//"}


def test_what_is_nearest_warms_up_first() -> None:
    """Known lags, then offsets of which nobody knows the end, then standbys that tell nothing."""
    spec = group(0, 2, a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q", at={4: 50_000, 2: 60_000}))
    assert answer(spec, 6)["b"] == "//24"
    spec = group(1, 1, a=has("p", (0, 1, 2)), b=has("q", standby=(0, 1, 2), at={2: 9}))
    assert answer(spec, 3) == {"a": "012//", "b": "/01/2"}


def test_a_warmup_that_nobody_measures_has_not_caught_up() -> None:
    """The end is not known: it goes on, and another one is not begun for it."""
    owner = AssignmentMemberSpec("p", MemberAssignment(of(0, 1)), reports_offsets=True)
    spec = group(0, 1, a=owner, b=has("q", warmup=(1,), at={1: 10**9}, ends=False))
    assert answer(spec, 2) == {"a": "01//", "b": "//1"}


def test_who_does_not_report_is_given_tasks_at_once() -> None:
    assert answer(group(a=has("p", (0, 1, 2, 3)), b=silent("q")), 4) == {"a": "23//", "b": "01//"}
    assert answer(group(a=silent("p", (0, 1, 2, 3)), b=has("q")), 4) == {"a": "0123//", "b": "//01"}


def test_of_a_process_only_who_reports_warms_up() -> None:
    """Of another member nobody would hear that it has caught up, also if it warms up now."""
    quiet = replace(has("q", warmup=(0,)), reports_offsets=False)
    assert answer(group(a=has("p", (0, 1, 2)), b=quiet, c=has("q")), 3)["c"] == "//01"


# Fail-over ----------------------------------------------------------------------------------------------


def test_who_has_caught_up_takes_over_from_who_is_gone() -> None:
    """Not who has less to do, nor who is further on in something else."""
    spec = group(a=has("p", (0, 1), standby=(4,), at={4: END}), b=has("q", (2,), at={3: END, 4: 4}))
    assert answer(spec, 5) == {"a": "014//", "b": "23//"}


def test_if_nobody_has_caught_up_who_is_furthest_takes_over() -> None:
    spec = group(a=has("p", at={0: 70}, ends=False), b=has("q", at={0: 71}, ends=False), c=has("r"))
    assert answer(spec, 1) == {"a": "//", "b": "0//", "c": "//"}


def test_a_standby_that_tells_nothing_comes_before_who_has_nothing() -> None:
    spec = group(a=has("p"), b=has("q", standby=(0,)), c=has("r"))
    assert answer(spec, 1)["b"] == "0//"
    assert answer(group(a=has("p", at={0: 1}, ends=False), b=has("q", standby=(0,))), 1)["a"] == "0//"


def test_of_those_who_have_caught_up_the_one_with_least_takes_over() -> None:
    spec = group(a=has("p", (0,), at={2: END}), b=has("q", at={2: END}), c=has("r", (1,)))
    spec = replace(spec, members={**spec.members, "d": has("s", standby=(2,), at={2: 1})})
    assert answer(spec, 3)["b"] == "2//"


def test_who_takes_over_more_than_its_share_gives_it_to_who_warms_up() -> None:
    """Tasks are run meanwhile."""
    spec = group(a=has("p", standby=(0, 1, 2, 3), at=dict.fromkeys(range(4), END)), b=has("q"))
    assert answer(spec, 4) == {"a": "0123//", "b": "//01"}


def test_a_copy_that_has_caught_up_takes_over_from_an_owner_that_restores() -> None:
    spec = group(1, a=has("p", (0,), at={0: 5}), b=has("q", standby=(0,), at={0: END}))
    assert answer(spec, 1) == {"a": "/0/", "b": "0//"}


def test_an_owner_is_not_behind_because_others_know_a_later_end() -> None:
    """It said so a minute ago. A standby that told its own numbers later does not take over."""
    late = replace(has("q", standby=(0,), at={0: 3 * END}), task_end_offsets={"0": {0: 3 * END}})
    assert answer(group(1, a=has("p", (0,)), b=late), 1) == {"a": "0//", "b": "/0/"}


def test_an_owner_that_restores_stays_if_nobody_is_ready() -> None:
    assert answer(group(1, a=has("p", (0,), at={0: 5}), b=has("q", standby=(0,), at={0: 6})), 1)["a"] == "0//"


# Standbys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standbys", [0, 1, 2])
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_standbys_are_on_other_processes(standbys: int, processes: int) -> None:
    """As many as are wanted, or one on each other; and each process has as many as the next."""
    names = "abcd"[:processes]
    given = assign(group(standbys, **{name: has(name) for name in names}), stateful(12))
    each = 12 // processes
    for mine in given.values():
        assert len(tasks(mine.active)) == each
        assert len(tasks(mine.standby)) == each * min(standbys, processes - 1)


def test_a_standby_that_is_to_take_over_becomes_the_warmup() -> None:
    """In its place: no further standby is made of what it had."""
    both = group(1, a=has("p", (0, 1, 2, 3)), b=has("q", standby=(0, 1, 2, 3), at={3: 50_000, 2: 40_000}))
    assert answer(both, 4) == {"a": "0123//", "b": "/01/23"}
    three = {**both.members, "c": has("r")}
    assert answer(replace(both, members=three), 4)["b"][-2:] == "/3"


def test_who_gives_up_a_task_has_a_standby_of_it() -> None:
    spec = group(1, a=has("p", (0, 1)), b=has("q", warmup=(0,), at={0: END}), c=has("r", standby=(1,)))
    assert answer(spec, 2) == {"a": "1/0/", "b": "0//", "c": "/1/"}


def test_standbys_stay_where_they_are_and_the_furthest_of_too_many() -> None:
    spec = group(
        1, a=has("p", (0,)), b=has("q", standby=(0,), at={0: 5}), c=has("r", standby=(0,), at={0: 7})
    )
    assert answer(spec, 1) == {"a": "0//", "b": "//", "c": "/0/"}
    spec = group(1, a=has("p", (0,)), b=has("q", standby=(0,)), c=has("r", at={0: 7}))
    assert answer(spec, 1) == {"a": "0//", "b": "/0/", "c": "//"}


def test_a_new_standby_is_where_most_state_is() -> None:
    spec = group(1, a=has("p", (0,)), b=has("q"), c=has("r", at={0: 5}), d=has("s", at={0: 7}))
    assert answer(spec, 1)["d"] == "/0/"


def test_a_standby_that_moves_warms_up_first() -> None:
    """The one that is there stays until then; nothing else is to be done."""
    three = {
        "a": has("p", (0, 1), standby=(4, 5, 6)),
        "b": has("q", (2, 3), standby=(0, 1, 7)),
        "c": has("r", (4, 5), standby=(2, 3)),
    }
    spec = group(1, 2, **three, d=has("s", (6, 7)))
    assert answer(spec, 8) == {"a": "01/456/", "b": "23/017/", "c": "45/23/", "d": "67//04"}
    spec = group(1, 2, **three, d=has("s", (6, 7), warmup=(0, 4), at={0: 1, 4: END}))
    assert answer(spec, 8) == {"a": "01/56/", "b": "23/017/", "c": "45/23/", "d": "67/4/0"}


def test_a_warmup_that_has_caught_up_is_no_warmup_any_more() -> None:
    """A standby if one is missing, else gone, if it is not to be active."""
    spec = group(1, a=has("p", (0,)), b=has("q", (1,), standby=(), warmup=(0,), at={0: END}))
    assert answer(spec, 2) == {"a": "0/1/", "b": "1/0/"}
    spec = group(0, a=has("p", (0,)), b=has("q", (1,), warmup=(0,), at={0: END}))
    assert answer(spec, 2) == {"a": "0//", "b": "1//"}


# Processes, threads, and what has no state --------------------------------------------------------------


def test_within_a_process_a_task_moves_at_once() -> None:
    """It is the same disk."""
    assert answer(group(a=has("p", (0, 1)), b=has("p")), 2) == {"a": "1//", "b": "0//"}


def test_a_process_is_weighed_by_its_members() -> None:
    """One of three threads is to have three tasks of four."""
    given = assign(group(a=has("p"), b=has("p"), c=has("p"), d=has("q")), stateful(4))
    assert [len(tasks(mine.active)) for mine in given.values()] == [1, 1, 1, 1]
    spec = group(a=has("p", (0,)), b=has("p", (1,)), c=has("q"), d=has("q"))
    assert sum(len(tasks(given.warmup)) for given in assign(spec, stateful(2)).values()) == 1


def test_a_copy_stays_with_its_thread() -> None:
    spec = group(1, a=has("p", (0,)), b=has("p"), c=has("q"), d=has("q", standby=(0,)))
    assert answer(spec, 1) == {"a": "0//", "b": "//", "c": "//", "d": "/0/"}


def test_what_has_no_state_moves_at_once_and_has_no_copies() -> None:
    """To where there is room when those with state have arrived."""
    topology = TopologyDescriber({"0": Subtopology(4, True), "x": Subtopology(4)})
    owner = has("p", (0, 1, 2, 3))
    owner = replace(owner, assigned=replace(owner.assigned, active={"0": (0, 1, 2, 3), "x": (0, 1, 2, 3)}))
    given = told(assign(group(1, a=owner, b=has("q")), topology))
    assert given == {"a": "0123x2x3//", "b": "x0x1/23/01"}


# Shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "weights", "least", "most"),
    [
        (0, [1, 2], [0, 0], [0, 0]),
        (5, [1, 1, 1], [1, 1, 1], [2, 2, 2]),
        (6, [1, 1, 1], [1, 1, 1], [2, 2, 2]),
        (4, [3, 1], [2, 0], [3, 1]),
        (7, [50, 1], [6, 0], [7, 0]),
    ],
)  # fmt: skip
def test_shares(count: int, weights: list[int], least: list[int], most: list[int]) -> None:
    """Of who may have one more as many do as tasks are left."""
    assert fair_quotas(count, weights) == (least, most)


def test_reprs() -> None:
    level = Balance([3, 0, 0], [1, 1, 1])
    assert repr(level) == "<Balance 2 over, 0 under>"
    spec = group(a=has("p", (0,)), b=has("q"))
    assert repr(IndexedGroup(spec, stateful(2))) == "<IndexedGroup 2 members of 2 processes, 2 tasks>"


# Racks and tags -----------------------------------------------------------------------------------------


def test_of_equal_processes_the_one_that_is_near_is_taken() -> None:
    racks = (frozenset("y"), frozenset("x"))
    topology = TopologyDescriber({"0": Subtopology(2, True, racks)})
    spec = group(a=replace(has("p"), rack_id="x"), b=replace(has("q"), rack_id="y"))
    assert told(assign(spec, topology)) == {"a": "1//", "b": "0//"}
    third = replace(has("r"), rack_id="x")
    full = group(0, 1, a=replace(has("p", (0, 1)), rack_id="y"), b=third)
    assert told(assign(full, topology))["b"] == "//1"


def test_standbys_share_as_few_tags_as_can_be() -> None:
    """A zone other than that of the active one, among processes that have equally much."""
    zones = dict(zip("abcd", "xxyy", strict=True))
    members = {name: replace(has(name), client_tags={"zone": zone}) for name, zone in zones.items()}
    spec = GroupSpec(members, AssignmentConfigs(1, ("zone",), 2))
    given = assign(spec, stateful(8))
    where = {task: zones[name] for name, mine in given.items() for task in tasks(mine.active)}
    assert [
        task for name, mine in given.items() for task in tasks(mine.standby) if where[task] == zones[name]
    ] == []
    assert given == assign(*shuffled(spec, stateful(8), 7))


def test_nobody_is_given_anything_where_there_is_nothing() -> None:
    assert assign(group(a=has("p")), stateful(0)) == {"a": NOTHING}
