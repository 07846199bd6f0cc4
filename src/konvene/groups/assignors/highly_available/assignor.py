"""A task with state moves when its copy has caught up, not before (KIP-441, KIP-1071).

A member that is given a task without its state restores it first, for hours maybe, and meanwhile nobody
processes that task. So it stays with whoever has it, while its new process warms it up: it follows the
changelog, and tells how far it is. When it is near enough to the end, the group's epoch rises, and in the
next answer it is active. An answer is a step of that, given what is, and never a plan that must be kept:
whatever changes meanwhile, the next answer begins from what members have then.

    actives     shared out evenly among processes by their members, with state and without (`_actives`)
    at once     to who has caught up, or cannot be waited for; within a process; or if nobody has the task
    warm-ups    else. As many in the group as are configured, those that are under way first
    standbys    as many as are configured, on other processes (`_copies`)
    members     of a process have as many tasks, give or take one (`_seats`)

Nobody who is behind is waited for in vain: who dies, or has nothing to report, is given nothing to warm up,
and a warm-up that is of no use any more ends. One that has caught up ends as well: it is active, or a
standby, or gone. Where no warm-ups are allowed at all nobody is waited for.

An answer that is followed is given again, unless something else changes: the answer to the answer is looked
for at once, until it is the same. It is another one where a standby that moved makes room for the next.

It ends: each move makes actives more even, or standbys while actives stay, and none makes them less so. As
many answers as there are moves to make are enough, if at least one copy catches up between two of them. A
copy of which nobody tells the end never does, and holds its place among the warm-ups while that is so.

Not done: how much a task does weighs nothing, and how large its state is only says what warms up first. A
copy that is nearly there does not give its place to one that would be of more use. With tags, a standby stays
where it is although a process with other tags has joined.
"""

from __future__ import annotations

from typing import Final

from konvene.groups.assignors.highly_available.active_tasks import Actives
from konvene.groups.assignors.highly_available.indexed_group import Group
from konvene.groups.assignors.highly_available.members import seats_of_actives, seats_of_copies
from konvene.groups.assignors.highly_available.standbys import Copies
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

AGAIN: Final = 8
"""So often the answer to an answer is looked for that does not change."""


def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Every task to a member, its standbys to others, and warm-ups to who is to have it.

    Raises `TaskAssignorError` if there are tasks and no members.
    """
    if not any(map(topology.max_num_input_partitions, topology.subtopologies)):
        return dict.fromkeys(sorted(spec.members), NOTHING)
    if not spec.members:
        raise TaskAssignorError("No process available to assign active tasks.")
    group = Group(spec, topology)
    given = _step(group)
    for _ in range(AGAIN):
        if all(mine is spec.members[name].assigned for name, mine in given.items()):
            break
        again = _step(group.followed(given))
        if all(again[name] is mine for name, mine in given.items()):
            break
        given = {name: _as_before(spec.members[name].assigned, mine) for name, mine in again.items()}
    return given


def _step(group: Group) -> GroupAssignment:
    actives = Actives(group)
    copies = Copies(group, actives)
    copies.keep_warmups()
    actives.begin_warmups()
    actives.share_stateless()
    copies.assign()
    return _answer(group, actives, copies)


def _answer(group: Group, actives: Actives, copies: Copies) -> GroupAssignment:
    """The values that came in where nothing changed, new ones where something did."""
    active: list[list[int]] = [[] for _ in group.names]
    for task, member in enumerate(seats_of_actives(group, actives.at)):
        active[member].append(task)
    standby, warmup = seats_of_copies(group, copies.on, copies.warmups)
    return {
        name: _as_before(of.assigned, MemberAssignment(*map(group.told, rows)))
        for name, of, *rows in zip(group.names, group.members, active, standby, warmup, strict=True)
    }


def _as_before(was: MemberAssignment, now: MemberAssignment) -> MemberAssignment:
    """The same values where they are the same."""
    same = now.active == was.active, now.standby == was.standby, now.warmup == was.warmup
    if all(same):
        return was
    return MemberAssignment(
        was.active if same[0] else now.active or NO_TASKS,
        was.standby if same[1] else now.standby or NO_TASKS,
        was.warmup if same[2] else now.warmup or NO_TASKS,
    )
