"""The highly available assignor, rule by rule."""

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
    """Return a member that reports: active tasks are at the end, copies at the given offsets, unknown
    otherwise."""
    offsets = dict.fromkeys(active, END) | dict(at or {})
    owned = {*active, *standby, *warmup} & offsets.keys() if ends else set()
    return AssignmentMemberSpec(
        process, MemberAssignment(of(*active), of(*standby), of(*warmup)),
        task_offsets={"0": offsets} if offsets else {},
        task_end_offsets={"0": dict.fromkeys(sorted(owned), END)} if owned else {},
        reports_offsets=True,
    )  # fmt: skip


def silent(process: str, active: Partitions = (), standby: Partitions = ()) -> AssignmentMemberSpec:
    """Return a member that reports no offsets."""
    return AssignmentMemberSpec(process, MemberAssignment(of(*active), of(*standby)))


def group(standbys: int = 0, warmups: int = 2, **members: AssignmentMemberSpec) -> GroupSpec:
    return GroupSpec(members, AssignmentConfigs(standbys, (), warmups))


def stateful(count: int) -> TopologyDescriber:
    return TopologyDescriber({"0": Subtopology(count, True)})


def roles_of(given: GroupAssignment) -> dict[str, str]:
    """Return each member's tasks as "active/standby/warm-up"."""
    return {
        name: "/".join(
            "".join(f"{partition}" if sub == "0" else f"{sub}{partition}" for sub, partition in tasks(role))
            for role in (mine.active, mine.standby, mine.warmup)
        )
        for name, mine in given.items()
    }


def assigned_roles(spec: GroupSpec, count: int) -> dict[str, str]:
    return roles_of(assign(spec, stateful(count)))


# Scale-out ----------------------------------------------------------------------------------------------


def test_new_process_warms_up_before_it_takes_over() -> None:
    """It is to have three of six tasks; two may warm up at a time, and none moves yet."""
    spec = group(a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q"))
    assert assigned_roles(spec, 6) == {"a": "012345//", "b": "//01"}


def test_a_caught_up_warm_up_takes_over_at_once_and_the_next_ones_start() -> None:
    spec = group(a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q", warmup=(0, 1), at={0: END - 10_000, 1: 5}))
    assert assigned_roles(spec, 6) == {"a": "12345//", "b": "0//12"}


def test_the_number_of_warm_ups_is_limited() -> None:
    full = has("p", tuple(range(9)))
    for budget, warm in ((1, "0"), (2, "01"), (3, "012"), (8, "0123")):
        assert assigned_roles(group(0, budget, a=full, b=has("q")), 9)["b"] == f"//{warm}"


def test_without_warm_ups_tasks_move_at_once() -> None:
    assert assigned_roles(group(0, 0, a=has("p", (0, 1, 2, 3)), b=has("q")), 4) == {"a": "23//", "b": "01//"}


@pytest.mark.parametrize("standbys", [0, 1, 2])
def test_from_one_process_to_two_to_four(standbys: int) -> None:
    """Each time it ends with equal shares, and with copies on as many processes as configured."""
    simulation = Restoring(stateful(12), AssignmentConfigs(standbys, (), 2))
    simulation.join("a", "a")
    simulation.settle(within=3)
    assert [len(tasks(mine.active)) for mine in simulation.given.values()] == [12]
    for more, each in (("b", 6), ("cd", 3)):
        for name in more:
            simulation.join(name, name)
        simulation.settle(within=12 * (1 + standbys) + 3)
        for mine in simulation.given.values():
            assert len(tasks(mine.active)) == each
            assert len(tasks(mine.standby)) == each * min(standbys, 12 // each - 1)
            assert not mine.warmup


def test_a_warm_up_continues_while_others_catch_up() -> None:
    """A warm-up continues although another copy has less lag by now."""
    both = {"a": has("p", (0, 1, 2, 3)), "b": has("q", warmup=(3,), at={3: 7, 0: 80_000})}
    assert assigned_roles(group(0, 1, **both), 4) == {"a": "0123//", "b": "//3"}


def test_a_warm_up_ends_when_its_member_dies() -> None:
    """And a member that joins instead starts another one."""
    both = group(a=has("p", (0, 1, 2, 3)), b=has("q", warmup=(2, 3), at={2: 7}), c=has("r"))
    assert assigned_roles(both, 4) == {"a": "0123//", "b": "//2", "c": "//0"}
    assert assigned_roles(without(both, "b"), 4) == {"a": "0123//", "c": "//01"}


def test_a_warm_up_ends_when_it_is_not_needed() -> None:
    """The warming member has its share already."""
    spec = group(a=has("p", (0, 1)), b=has("q", (2, 3), warmup=(1,), at={1: 50_000}))
    assert assigned_roles(spec, 4) == {"a": "01//", "b": "23//"}


def test_tasks_with_the_least_lag_warm_up_first() -> None:
    """Known lags first, then offsets without a known end, then standbys without a report."""
    spec = group(0, 2, a=has("p", (0, 1, 2, 3, 4, 5)), b=has("q", at={4: 50_000, 2: 60_000}))
    assert assigned_roles(spec, 6)["b"] == "//24"
    spec = group(1, 1, a=has("p", (0, 1, 2)), b=has("q", standby=(0, 1, 2), at={2: 9}))
    assert assigned_roles(spec, 3) == {"a": "012//", "b": "/01/2"}


def test_a_warm_up_without_a_known_end_has_not_caught_up() -> None:
    """The end is unknown: it continues, and no other warm-up is started for it."""
    owner = AssignmentMemberSpec("p", MemberAssignment(of(0, 1)), reports_offsets=True)
    spec = group(0, 1, a=owner, b=has("q", warmup=(1,), at={1: 10**9}, ends=False))
    assert assigned_roles(spec, 2) == {"a": "01//", "b": "//1"}


def test_members_without_reports_get_tasks_at_once() -> None:
    assert assigned_roles(group(a=has("p", (0, 1, 2, 3)), b=silent("q")), 4) == {"a": "23//", "b": "01//"}
    assert assigned_roles(group(a=silent("p", (0, 1, 2, 3)), b=has("q")), 4) == {"a": "0123//", "b": "//01"}


def test_only_reporting_members_of_a_process_warm_up() -> None:
    """Another member would not report that it has caught up, even if it warms up now."""
    quiet = replace(has("q", warmup=(0,)), reports_offsets=False)
    assert assigned_roles(group(a=has("p", (0, 1, 2)), b=quiet, c=has("q")), 3)["c"] == "//01"


# Fail-over ----------------------------------------------------------------------------------------------


def test_a_caught_up_member_takes_over_from_a_departed_one() -> None:
    """Neither the member with the fewest tasks, nor one with less lag in another task."""
    spec = group(a=has("p", (0, 1), standby=(4,), at={4: END}), b=has("q", (2,), at={3: END, 4: 4}))
    assert assigned_roles(spec, 5) == {"a": "014//", "b": "23//"}


def test_without_a_caught_up_member_the_one_with_the_least_lag_takes_over() -> None:
    spec = group(a=has("p", at={0: 70}, ends=False), b=has("q", at={0: 71}, ends=False), c=has("r"))
    assert assigned_roles(spec, 1) == {"a": "//", "b": "0//", "c": "//"}


def test_a_standby_without_a_report_precedes_a_member_without_state() -> None:
    spec = group(a=has("p"), b=has("q", standby=(0,)), c=has("r"))
    assert assigned_roles(spec, 1)["b"] == "0//"
    assert assigned_roles(group(a=has("p", at={0: 1}, ends=False), b=has("q", standby=(0,))), 1)["a"] == "0//"


def test_of_the_caught_up_members_the_one_with_the_fewest_tasks_takes_over() -> None:
    spec = group(a=has("p", (0,), at={2: END}), b=has("q", at={2: END}), c=has("r", (1,)))
    spec = replace(spec, members={**spec.members, "d": has("s", standby=(2,), at={2: 1})})
    assert assigned_roles(spec, 3)["b"] == "2//"


def test_a_member_above_its_share_releases_tasks_to_warm_ups() -> None:
    """The tasks run meanwhile."""
    spec = group(a=has("p", standby=(0, 1, 2, 3), at=dict.fromkeys(range(4), END)), b=has("q"))
    assert assigned_roles(spec, 4) == {"a": "0123//", "b": "//01"}


def test_a_copy_that_has_caught_up_takes_over_from_an_owner_that_restores() -> None:
    spec = group(1, a=has("p", (0,), at={0: 5}), b=has("q", standby=(0,), at={0: END}))
    assert assigned_roles(spec, 1) == {"a": "/0/", "b": "0//"}


def test_a_later_end_reported_by_others_does_not_make_an_owner_lag() -> None:
    """Its report is a minute old. A standby that reported later numbers does not take over."""
    late = replace(has("q", standby=(0,), at={0: 3 * END}), task_end_offsets={"0": {0: 3 * END}})
    assert assigned_roles(group(1, a=has("p", (0,)), b=late), 1) == {"a": "0//", "b": "/0/"}


def test_a_restoring_owner_stays_if_no_other_is_ready() -> None:
    assert (
        assigned_roles(group(1, a=has("p", (0,), at={0: 5}), b=has("q", standby=(0,), at={0: 6})), 1)["a"]
        == "0//"
    )


# Standbys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standbys", [0, 1, 2])
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_standbys_are_on_other_processes(standbys: int, processes: int) -> None:
    """As many as configured, or one on each other process; and all processes have equally many."""
    names = "abcd"[:processes]
    given = assign(group(standbys, **{name: has(name) for name in names}), stateful(12))
    each = 12 // processes
    for mine in given.values():
        assert len(tasks(mine.active)) == each
        assert len(tasks(mine.standby)) == each * min(standbys, processes - 1)


def test_the_standby_of_the_next_owner_becomes_the_warm_up() -> None:
    """In its place: no further standby replaces the promoted one."""
    both = group(1, a=has("p", (0, 1, 2, 3)), b=has("q", standby=(0, 1, 2, 3), at={3: 50_000, 2: 40_000}))
    assert assigned_roles(both, 4) == {"a": "0123//", "b": "/01/23"}
    three = {**both.members, "c": has("r")}
    assert assigned_roles(replace(both, members=three), 4)["b"][-2:] == "/3"


def test_the_former_owner_of_a_task_becomes_its_standby() -> None:
    spec = group(1, a=has("p", (0, 1)), b=has("q", warmup=(0,), at={0: END}), c=has("r", standby=(1,)))
    assert assigned_roles(spec, 2) == {"a": "1/0/", "b": "0//", "c": "/1/"}


def test_standbys_stay_and_of_too_many_the_one_with_the_least_lag() -> None:
    spec = group(
        1, a=has("p", (0,)), b=has("q", standby=(0,), at={0: 5}), c=has("r", standby=(0,), at={0: 7})
    )
    assert assigned_roles(spec, 1) == {"a": "0//", "b": "//", "c": "/0/"}
    spec = group(1, a=has("p", (0,)), b=has("q", standby=(0,)), c=has("r", at={0: 7}))
    assert assigned_roles(spec, 1) == {"a": "0//", "b": "/0/", "c": "//"}


def test_a_new_standby_goes_to_the_most_restored_copy() -> None:
    spec = group(1, a=has("p", (0,)), b=has("q"), c=has("r", at={0: 5}), d=has("s", at={0: 7}))
    assert assigned_roles(spec, 1)["d"] == "/0/"


def test_a_standby_that_moves_warms_up_first() -> None:
    """The existing standby stays until then; nothing else changes."""
    three = {
        "a": has("p", (0, 1), standby=(4, 5, 6)),
        "b": has("q", (2, 3), standby=(0, 1, 7)),
        "c": has("r", (4, 5), standby=(2, 3)),
    }
    spec = group(1, 2, **three, d=has("s", (6, 7)))
    assert assigned_roles(spec, 8) == {"a": "01/456/", "b": "23/017/", "c": "45/23/", "d": "67//04"}
    spec = group(1, 2, **three, d=has("s", (6, 7), warmup=(0, 4), at={0: 1, 4: END}))
    assert assigned_roles(spec, 8) == {"a": "01/56/", "b": "23/017/", "c": "45/23/", "d": "67/4/0"}


def test_a_caught_up_warm_up_ends() -> None:
    """It becomes a standby if one is missing, and is dropped otherwise, unless it becomes active."""
    spec = group(1, a=has("p", (0,)), b=has("q", (1,), standby=(), warmup=(0,), at={0: END}))
    assert assigned_roles(spec, 2) == {"a": "0/1/", "b": "1/0/"}
    spec = group(0, a=has("p", (0,)), b=has("q", (1,), warmup=(0,), at={0: END}))
    assert assigned_roles(spec, 2) == {"a": "0//", "b": "1//"}


# Processes, threads, and stateless tasks ----------------------------------------------------------------


def test_within_a_process_a_task_moves_at_once() -> None:
    """Both members share the disk."""
    assert assigned_roles(group(a=has("p", (0, 1)), b=has("p")), 2) == {"a": "1//", "b": "0//"}


def test_a_process_is_weighed_by_its_members() -> None:
    """One of three threads gets three of four tasks."""
    given = assign(group(a=has("p"), b=has("p"), c=has("p"), d=has("q")), stateful(4))
    assert [len(tasks(mine.active)) for mine in given.values()] == [1, 1, 1, 1]
    spec = group(a=has("p", (0,)), b=has("p", (1,)), c=has("q"), d=has("q"))
    assert sum(len(tasks(given.warmup)) for given in assign(spec, stateful(2)).values()) == 1


def test_a_copy_stays_with_its_thread() -> None:
    spec = group(1, a=has("p", (0,)), b=has("p"), c=has("q"), d=has("q", standby=(0,)))
    assert assigned_roles(spec, 1) == {"a": "0//", "b": "//", "c": "//", "d": "/0/"}


def test_stateless_tasks_move_at_once_and_have_no_copies() -> None:
    """They go where capacity is left once the stateful tasks have moved."""
    topology = TopologyDescriber({"0": Subtopology(4, True), "x": Subtopology(4)})
    owner = has("p", (0, 1, 2, 3))
    owner = replace(owner, assigned=replace(owner.assigned, active={"0": (0, 1, 2, 3), "x": (0, 1, 2, 3)}))
    given = roles_of(assign(group(1, a=owner, b=has("q")), topology))
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
def test_fair_quotas(count: int, weights: list[int], least: list[int], most: list[int]) -> None:
    """Of the members that may have one more, as many do as tasks are left."""
    assert fair_quotas(count, weights) == (least, most)


def test_reprs() -> None:
    level = Balance([3, 0, 0], [1, 1, 1])
    assert repr(level) == "<Balance 2 over, 0 under>"
    spec = group(a=has("p", (0,)), b=has("q"))
    assert repr(IndexedGroup(spec, stateful(2))) == "<IndexedGroup 2 members of 2 processes, 2 tasks>"


# Racks and tags -----------------------------------------------------------------------------------------


def test_of_equal_processes_the_one_in_the_tasks_rack_is_chosen() -> None:
    racks = (frozenset("y"), frozenset("x"))
    topology = TopologyDescriber({"0": Subtopology(2, True, racks)})
    spec = group(a=replace(has("p"), rack_id="x"), b=replace(has("q"), rack_id="y"))
    assert roles_of(assign(spec, topology)) == {"a": "1//", "b": "0//"}
    third = replace(has("r"), rack_id="x")
    full = group(0, 1, a=replace(has("p", (0, 1)), rack_id="y"), b=third)
    assert roles_of(assign(full, topology))["b"] == "//1"


def test_standbys_share_as_few_tags_as_can_be() -> None:
    """A zone other than that of the active task, among processes with equally many tasks."""
    zones = dict(zip("abcd", "xxyy", strict=True))
    members = {name: replace(has(name), client_tags={"zone": zone}) for name, zone in zones.items()}
    spec = GroupSpec(members, AssignmentConfigs(1, ("zone",), 2))
    given = assign(spec, stateful(8))
    where = {task: zones[name] for name, mine in given.items() for task in tasks(mine.active)}
    assert [
        task for name, mine in given.items() for task in tasks(mine.standby) if where[task] == zones[name]
    ] == []
    assert given == assign(*shuffled(spec, stateful(8), 7))


def test_without_tasks_nothing_is_assigned() -> None:
    assert assign(group(a=has("p")), stateful(0)) == {"a": NOTHING}
