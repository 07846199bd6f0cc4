"""A task with state moves when its copy has caught up, not before (KIP-441, KIP-1071).

Where tasks should be is what the sticky assignor says. An active task that would have to leave a living
member for a process that is behind stays, and that process warms it up, as many in the group as are
configured.
"""

from __future__ import annotations

from konvene.groups.assignors import sticky
from konvene.groups.assignors.progress import Progress, Task
from konvene.groups.assignors.tasks import (
    NO_TASKS,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Tasks,
    TopologyDescriber,
)

__all__ = ["assign"]

Roles = tuple[set[Task], set[Task], set[Task]]


def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Every task to a member, its standbys to others, and warm-ups to who is to have it.

    Raises `TaskAssignorError` if there are tasks and no members.
    """
    given = sticky.assign(spec, topology)
    progress = Progress.of(spec.members.values())
    found: dict[str, Roles] = {
        name: (set(_each(mine.active)), set(_each(mine.standby)), set()) for name, mine in given.items()
    }
    was = {task: name for name in sorted(spec.members) for task in _each(spec.members[name].assigned.active)}
    moves = [
        (task not in _each(spec.members[name].assigned.warmup), task, name)
        for name, mine in given.items()
        for task in _each(mine.active)
        if was.get(task, name) != name and topology.is_stateful(task[0])
    ]
    room = spec.configs.num_warmup_replicas
    for _, task, to in sorted(moves):
        owner, member = was[task], spec.members[to]
        process = spec.members[owner].process_id
        behind = not progress.has_caught_up(member.process_id, task, spec.configs.acceptable_recovery_lag)
        if process == member.process_id or not member.reports_offsets or not behind:
            continue
        found[to][0].discard(task)
        copies = [n for n, of in spec.members.items() if of.process_id == process and task in found[n][1]]
        for name in copies:
            found[name][1].discard(task)
        found[owner][0].add(task)
        if room:
            room -= 1
            found[to][2].add(task)
        elif copies:
            found[to][1].add(task)
    return {name: _told(spec.members[name].assigned, roles) for name, roles in found.items()}


def _each(told: Tasks) -> list[Task]:
    return [(name, partition) for name, some in told.items() for partition in some]


def _told(was: MemberAssignment, roles: Roles) -> MemberAssignment:
    """The same values where nothing changed."""
    active, standby, warmup = map(_tasks, roles)
    now = MemberAssignment(
        was.active if active == was.active else active,
        was.standby if standby == was.standby else standby,
        was.warmup if warmup == was.warmup else warmup,
    )
    return was if now == was else now


def _tasks(some: set[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(some):
        found.setdefault(name, []).append(partition)
    return {name: tuple(partitions) for name, partitions in found.items()} or NO_TASKS
