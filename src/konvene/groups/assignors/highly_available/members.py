"""Which member of a process has which of its tasks.

Members of a process share a disk, so that a task may go from one to another at once. It does so only where
one has two more than another: of those with state first, then of all together, among which only those without
state move. Copies stay with the member that has them, or had the task; new ones go to who has fewest.

A warm-up is only for members that report: of others nobody would hear that it has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from konvene.groups.assignors.highly_available.indexed_group import ABSENT, Group
from konvene.groups.assignors.highly_available.quotas import Level

__all__ = ["seats_of_actives", "seats_of_copies"]


def seats_of_actives(group: Group, at: Sequence[int]) -> list[int]:
    """For each task a member of the process that it is at."""
    seats = [ABSENT] * group.count
    several: dict[int, tuple[list[int], list[int]]] = {}
    for task, process in enumerate(at):
        if group.weights[process] == 1:
            seats[task] = group.members_of[process][0]
        else:
            several.setdefault(process, ([], []))[not group.stateful[task]].append(task)
    for process, kinds in several.items():
        members = group.members_of[process]
        count = [0] * len(members)
        for tasks in kinds:
            _seat(group, process, tasks, count, seats)
    return seats


def _seat(group: Group, process: int, tasks: list[int], count: list[int], seats: list[int]) -> None:
    """These beside those that were counted before, which stay."""
    members = group.members_of[process]
    number = {member: at for at, member in enumerate(members)}
    new, strays = [], []
    for task in tasks:
        seat = number.get(group.owner[task], ABSENT)
        if seat == ABSENT:
            new.append(task)
            seat = next((number[c.member] for c in group.copies[task] if c.process == process), ABSENT)
        if seat == ABSENT:
            strays.append(task)
        else:
            seats[task] = members[seat]
            count[seat] += 1
    queue = [(n, at) for at, n in enumerate(count)]
    heapify(queue)
    for task in strays:
        n, at = queue[0]
        heapreplace(queue, (n + 1, at))
        seats[task] = members[at]
        count[at] += 1
    level = Level(count, [1] * len(members))
    if level.is_even:
        return
    is_new = set(new)
    takers = [at for at in range(len(members)) if level.takes(at)]
    for task in new + [task for task in tasks if task not in is_new]:
        giver = number[seats[task]]
        if level.gives(giver):
            while takers and not level.takes(takers[-1]):
                takers.pop()
            if not takers:
                break
            level.move(giver, takers[-1])
            seats[task] = members[takers[-1]]


def seats_of_copies(
    group: Group, on: Sequence[Sequence[int]], warmups: Mapping[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """For each member the tasks of which it has a standby, and those that it warms up."""
    standbys: list[list[int]] = [[] for _ in group.names]
    warm: list[list[int]] = [[] for _ in group.names]
    count = [0] * len(group.names)
    later: list[tuple[int, int, bool]] = []
    for task, processes in enumerate(on):
        to = warmups.get(task, ABSENT)
        for process in (*processes, to) if to != ABSENT else processes:
            member = _as_before(group, task, process, process == to)
            if member == ABSENT:
                later.append((task, process, process == to))
            else:
                (warm if process == to else standbys)[member].append(task)
                count[member] += 1
    for task, process, is_warm in later:
        some = [m for m in group.members_of[process] if group.reports[m] or not is_warm]
        member = min(some, key=lambda m: (count[m], m)) if len(some) > 1 else some[0]
        (warm if is_warm else standbys)[member].append(task)
        count[member] += 1
    for row in (*standbys, *warm):
        row.sort()
    return standbys, warm


def _as_before(group: Group, task: int, process: int, is_warm: bool) -> int:
    """The member of a process that has the task already, in whatever role."""
    if group.weights[process] == 1:
        return group.members_of[process][0]
    owner = group.owner[task]
    found = owner if owner != ABSENT and group.process_of[owner] == process else ABSENT
    for copy in group.copies[task]:
        if copy.process == process:
            found = copy.member
    return found if found == ABSENT or group.reports[found] or not is_warm else ABSENT
