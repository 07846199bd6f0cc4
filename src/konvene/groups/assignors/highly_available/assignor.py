"""The highly available task assignor: stateful tasks move after their copies caught up (KIP-441, KIP-1071).

A member that gets a task without its state has to restore it first, possibly for hours, during which the task
is not processed. Therefore the task stays with its owner while its next process warms it up: it replays the
changelog and reports its offset. When its lag is acceptable, the group's epoch rises, and the next assignment
makes it active. Each assignment is one step from the members' current tasks, not part of a stored plan.

    active tasks   balanced over processes by number of members, stateful and stateless (`active_tasks`)
    at once        moves to processes that have caught up or cannot be waited for, moves within a process, and
                   tasks without an owner
    warm-ups       precede all other moves; as many in the group as are configured, ongoing ones first
    standbys       the configured number, on other processes (`standbys`)
    members        of a process differ by at most one task (`members`)

No warm-up waits forever: members that left or report no offsets get none, and a warm-up ends when it no
longer improves the balance. One that has caught up becomes active or a standby, or is removed. If warm-ups
are disabled, all moves are immediate.

The result is stable: when the members have adopted it and nothing else has changed, the assignor returns it
again. To guarantee that, the computation is repeated on its own result until nothing changes, since the move
of one standby may permit the next.

The sequence of assignments ends: each move improves the balance of active tasks, or that of standbys while
active tasks stay, and none degrades either. There are at most as many assignments as moves, provided that a
copy catches up between two of them. A copy whose end offset no member reports never catches up, and counts as
one of the allowed warm-ups.

Limits: all tasks weigh the same; the size of their state only orders the warm-ups. A warm-up is not replaced
by a more useful one. With client tags, standbys do not move when a process with other tags joins.
"""

from __future__ import annotations

from typing import Final

from konvene.groups.assignors.highly_available.active_tasks import ActiveTasks
from konvene.groups.assignors.highly_available.indexed_group import IndexedGroup
from konvene.groups.assignors.highly_available.members import members_of_active_tasks, members_of_copies
from konvene.groups.assignors.highly_available.standbys import Standbys
from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TaskAssignorError,
    TopologyDescriber,
)

__all__ = ["assign"]

MAX_STEPS: Final = 8
"""Maximum number of times that the step is repeated on its own result."""


def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Return the next assignment of active tasks, standbys and warm-ups to members.

    Raises `TaskAssignorError` if there are tasks and no members.
    """
    if not any(map(topology.max_num_input_partitions, topology.subtopologies)):
        return dict.fromkeys(sorted(spec.members), NOTHING)
    if not spec.members:
        raise TaskAssignorError("No process available to assign active tasks.")
    group = IndexedGroup(spec, topology)
    assignment = _next_assignment(group)
    for _ in range(MAX_STEPS):
        if all(assigned is spec.members[name].assigned for name, assigned in assignment.items()):
            break
        following = _next_assignment(group.with_assignment(assignment))
        if all(following[name] is assigned for name, assigned in assignment.items()):
            break
        assignment = {
            name: _reuse_unchanged(spec.members[name].assigned, assigned)
            for name, assigned in following.items()
        }
    return assignment


def _next_assignment(group: IndexedGroup) -> GroupAssignment:
    actives = ActiveTasks(group)
    standbys = Standbys(group, actives)
    standbys.keep_warmups()
    actives.start_warmups()
    actives.assign_stateless()
    standbys.assign()
    return _to_assignment(group, actives, standbys)


def _to_assignment(group: IndexedGroup, actives: ActiveTasks, standbys: Standbys) -> GroupAssignment:
    """Return the assignment by member id, with the objects of the input where nothing changed."""
    active: list[list[int]] = [[] for _ in group.member_ids]
    for task, number in enumerate(members_of_active_tasks(group, actives.process_of)):
        active[number].append(task)
    standby, warmup = members_of_copies(group, standbys.processes_of, standbys.warmups)
    return {
        name: _reuse_unchanged(member.assigned, MemberAssignment(*map(group.to_tasks, roles)))
        for name, member, *roles in zip(group.member_ids, group.members, active, standby, warmup, strict=True)
    }


def _reuse_unchanged(old: MemberAssignment, new: MemberAssignment) -> MemberAssignment:
    """Return the new assignment of a member, with the objects of the old one for unchanged roles."""
    unchanged = new.active == old.active, new.standby == old.standby, new.warmup == old.warmup
    if all(unchanged):
        return old
    return MemberAssignment(
        old.active if unchanged[0] else new.active or NO_TASKS,
        old.standby if unchanged[1] else new.standby or NO_TASKS,
        old.warmup if unchanged[2] else new.warmup or NO_TASKS,
    )
