"""Invariants of the highly available assignor for any group, and its termination."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given as whenever
from hypothesis import strategies as st
from tests.groups.assignors.highly_available.restoring import (
    FULL,
    SLOWEST,
    Restoring,
    copies,
    could_be_evener,
    loads,
    process_of_owners,
    spread_within,
)
from tests.groups.assignors.tasks.golden import before, on_processes, owners, tasks
from tests.groups.assignors.tasks.groups import groups, having, shuffled, topologies

from konvene.groups.assignors.highly_available.assignor import assign
from konvene.groups.assignors.tasks.contract import AssignmentConfigs, GroupSpec, TopologyDescriber, checked
from konvene.groups.assignors.tasks.lags import Progress

Group = tuple[GroupSpec, TopologyDescriber]
LAG = 1


@st.composite
def reporting(draw: st.DrawFn) -> Group:
    """Members with any tasks, some of which report; ends are known for some tasks, also from lagging
    members."""
    spec, topology = draw(groups())
    members = {}
    for name, of in spec.members.items():
        more = draw(st.integers(0, 2))
        ends = {sub: {p: at + more for p, at in some.items()} for sub, some in of.task_offsets.items()}
        members[name] = replace(
            of, reports_offsets=draw(st.booleans()), task_end_offsets=ends if draw(st.booleans()) else {}
        )
    configs = AssignmentConfigs(draw(st.integers(0, 3)), (), draw(st.integers(0, 3)), LAG)
    return GroupSpec(members, configs), topology


@whenever(reporting())
def test_tasks_and_their_copies(group: Group) -> None:
    """Each task is active once; each stateful one has its number of standbys, or a warm-up instead of one."""
    spec, topology = group
    given = assign(spec, topology)
    assert checked(spec, topology, given) == given
    assert sum(len(tasks(mine.active)) for mine in given.values()) == sum(
        of.partitions for of in topology.subtopologies.values()
    )
    standbys, warmups = copies(given, "standby"), copies(given, "warmup")
    others = len({of.process_id for of in spec.members.values()}) - 1
    wanted = spec.configs.num_standby_replicas
    for task in owners(given):
        if topology.is_stateful(task[0]):
            assert standbys[task] <= wanted
            assert warmups[task] <= 1
            assert standbys[task] + warmups[task] >= min(wanted, others)
        else:
            assert not standbys[task]
            assert not warmups[task]


@whenever(reporting())
def test_warmups(group: Group) -> None:
    """At most the allowed number, on lagging processes, for members that would report catching up."""
    spec, topology = group
    given = assign(spec, topology)
    progress = Progress.of(spec.members.values())
    assert copies(given, "warmup").total() <= spec.configs.num_warmup_replicas
    for name, mine in given.items():
        for task in tasks(mine.warmup):
            assert spec.members[name].reports_offsets
            assert not progress.has_caught_up(spec.members[name].process_id, task, LAG)


@whenever(reporting())
def test_tasks_that_move_at_once(group: Group) -> None:
    """A stateful task leaves a living process only for a caught-up member, or for one that does not
    report."""
    spec, topology = group
    progress = Progress.of(spec.members.values())
    reports = {of.process_id for of in spec.members.values() if of.reports_offsets}
    was, now = process_of_owners(spec, before(spec)), process_of_owners(spec, assign(spec, topology))
    held = [task for of in spec.members.values() for task in tasks(of.assigned.active)]
    for task, process in now.items():
        if topology.is_stateful(task[0]) and held.count(task) == 1 and process != was[task]:
            cold = process not in reports or spec.configs.num_warmup_replicas == 0
            assert cold or progress.has_caught_up(process, task, LAG)


@whenever(reporting())
def test_a_followed_assignment_is_repeated(group: Group) -> None:
    """The very same values, if nothing else has changed."""
    spec, topology = group
    given = assign(spec, topology)
    after = having(spec, given)
    assert all(mine is after.members[name].assigned for name, mine in assign(after, topology).items())


@whenever(reporting(), st.integers())
def test_order_of_maps_does_not_matter(group: Group, seed: int) -> None:
    given, other = assign(*group), assign(*shuffled(*group, seed))
    assert given == other
    assert list(given) == list(other)


@st.composite
def lives(draw: st.DrawFn) -> Restoring:
    configs = AssignmentConfigs(draw(st.integers(0, 2)), (), draw(st.integers(1, 3)))
    life = Restoring(draw(topologies()), configs, draw(st.integers(0, 1 << 16)))
    for number in range(draw(st.integers(1, 6))):
        process = draw(st.sampled_from("pqrst"))
        life.join(f"m{number}", process, silent=not draw(st.integers(0, 9)))
    return life


@whenever(lives(), st.data())
def test_reassignment_terminates(life: Restoring, data: st.DataObject) -> None:
    """Members join and leave while others restore. Once that stops, all running tasks are restored soon, and
    in each round one warm-up catches up: a round per copy of each stateful task is enough, since no move is
    repeated."""
    for number in range(data.draw(st.integers(0, 6))):
        for _ in range(data.draw(st.integers(0, 3))):
            life.round()
        if data.draw(st.booleans()) and len(life.process_of) > 1:
            life.leave(data.draw(st.sampled_from(sorted(life.process_of))))
        else:
            life.join(f"n{number}", data.draw(st.sampled_from("pqrstu")))
    stateful = {name for name, of in life.topology.subtopologies.items() if of.stateful}
    count = sum(life.topology.max_num_input_partitions(name) for name in stateful)
    life.settle(within=SLOWEST + 3 + count * (1 + life.configs.num_standby_replicas))
    spec, given = life.spec, life.answer()
    assert given == life.given
    assert not copies(given, "warmup")
    assert not could_be_evener(loads(spec, given))
    assert not could_be_evener(loads(spec, given, stateful))
    assert spread_within(spec, given) <= 1
    assert max(actives := [len(tasks(mine.active)) for mine in given.values()]) - min(actives) <= 1
    assert not _standbys_could_be_evener(life)


def _standbys_could_be_evener(life: Restoring) -> bool:
    """Return whether a reporting process could take over a standby of one with more, per member."""
    spec = life.spec
    on = on_processes(spec, life.given)
    _, weights = zip(*(row for row in loads(spec, life.given).values()), strict=True)
    weight = dict(zip(loads(spec, life.given), weights, strict=True))
    has = dict.fromkeys(weight, 0)
    rows = [(of.process_id, task) for n, of in spec.members.items() for task in tasks(life.given[n].standby)]
    for process, _ in rows:
        has[process] += 1
    return any(
        has[process] * weight[other] > (has[other] + 1) * weight[process]
        for process, task in rows
        for other in weight
        if other not in life.silent and not on[other, task]
    )


@whenever(lives(), st.data())
def test_a_caught_up_member_takes_over_from_a_dead_process(life: Restoring, data: st.DataObject) -> None:
    """Otherwise the one with the least lag; never a member without state while there is one with state."""
    for _ in range(data.draw(st.integers(1, 6))):
        life.round()
    dead = data.draw(st.sampled_from(sorted(set(life.process_of.values()))))
    was = process_of_owners(life.spec, life.given)
    for name in [name for name, process in life.process_of.items() if process == dead]:
        life.leave(name)
    reporting = sorted(set(life.process_of.values()) - life.silent)
    if not life.process_of or life.silent & set(life.process_of.values()):
        return
    for task, process in process_of_owners(life.spec, life.answer()).items():
        if was[task] == dead and life.topology.is_stateful(task[0]):
            far = {p: life.disks[p][task] for p in reporting if task in life.disks[p]}
            if far:
                assert far.get(process, -1) >= min(FULL, max(far.values()))
