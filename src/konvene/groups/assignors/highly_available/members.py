"""Distribute the tasks of each process among its members.

Members of a process share a disk, so a task may move from one to another at once. It moves only if one member
has two tasks more than another: stateful tasks are balanced first; then all tasks together, by moves of
stateless ones. A copy stays with the member that has it or had the active task; a new one goes to the member
with the fewest.

Only members that report offsets get warm-ups: of the others the coordinator would never learn that a copy has
caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from konvene.groups.assignors.highly_available.indexed_group import ABSENT, IndexedGroup
from konvene.groups.assignors.highly_available.quotas import Balance

__all__ = ["members_of_active_tasks", "members_of_copies"]


def members_of_active_tasks(group: IndexedGroup, processes: Sequence[int]) -> list[int]:
    """Return the member that is chosen for each active task, by task.

    `processes`: by task, the process to which it is assigned."""
    member_of = [ABSENT] * group.count
    by_process: dict[int, tuple[list[int], list[int]]] = {}
    for task, process in enumerate(processes):
        if group.weights[process] == 1:
            member_of[task] = group.members_of[process][0]
        else:
            by_process.setdefault(process, ([], []))[not group.stateful[task]].append(task)
    for process, by_statefulness in by_process.items():
        members = group.members_of[process]
        counts = [0] * len(members)
        for tasks in by_statefulness:
            _assign_in_process(group, process, tasks, counts, member_of)
    return member_of


def _assign_in_process(
    group: IndexedGroup, process: int, tasks: list[int], counts: list[int], member_of: list[int]
) -> None:
    """Choose a member of the process for each of these tasks, and store its number in `member_of`.

    `counts`: the number of tasks that each member of the process has already; those do not move. Updated.
    """
    members = group.members_of[process]
    index_of = {member: i for i, member in enumerate(members)}
    moved_in, unowned = [], []
    for task in tasks:
        index = index_of.get(group.owner[task], ABSENT)
        if index == ABSENT:
            moved_in.append(task)
            index = next((index_of[c.member] for c in group.copies[task] if c.process == process), ABSENT)
        if index == ABSENT:
            unowned.append(task)
        else:
            member_of[task] = members[index]
            counts[index] += 1
    queue = [(load, i) for i, load in enumerate(counts)]
    heapify(queue)
    for task in unowned:
        load, i = queue[0]
        heapreplace(queue, (load + 1, i))
        member_of[task] = members[i]
        counts[i] += 1
    balance = Balance(counts, [1] * len(members))
    if balance.is_even:
        return
    moved = set(moved_in)
    takers = [i for i in range(len(members)) if balance.may_take(i)]
    for task in moved_in + [task for task in tasks if task not in moved]:
        source = index_of[member_of[task]]
        if balance.may_give(source):
            while takers and not balance.may_take(takers[-1]):
                takers.pop()
            if not takers:
                break
            balance.move(source, takers[-1])
            member_of[task] = members[takers[-1]]


def members_of_copies(
    group: IndexedGroup, standby_processes: Sequence[Sequence[int]], warmups: Mapping[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the standby tasks and the warm-up tasks of each member.

    `standby_processes`: by task, the processes of its standbys. `warmups`: by task, the process that warms it
    up.
    """
    standby_tasks: list[list[int]] = [[] for _ in group.member_ids]
    warmup_tasks: list[list[int]] = [[] for _ in group.member_ids]
    counts = [0] * len(group.member_ids)
    unplaced: list[tuple[int, int, bool]] = []
    for task, processes in enumerate(standby_processes):
        warmup_process = warmups.get(task, ABSENT)
        for process in (*processes, warmup_process) if warmup_process != ABSENT else processes:
            member = _current_member(group, task, process, process == warmup_process)
            if member == ABSENT:
                unplaced.append((task, process, process == warmup_process))
            else:
                (warmup_tasks if process == warmup_process else standby_tasks)[member].append(task)
                counts[member] += 1
    for task, process, warms_up in unplaced:
        candidates = [m for m in group.members_of[process] if group.reports[m] or not warms_up]
        member = min(candidates, key=lambda m: (counts[m], m)) if len(candidates) > 1 else candidates[0]
        (warmup_tasks if warms_up else standby_tasks)[member].append(task)
        counts[member] += 1
    for tasks in (*standby_tasks, *warmup_tasks):
        tasks.sort()
    return standby_tasks, warmup_tasks


def _current_member(group: IndexedGroup, task: int, process: int, warms_up: bool) -> int:
    """Return the member of a process that has the task in any role; `ABSENT` if there is none.

    `warms_up`: the task is to be warmed up, so the member has to report offsets.
    """
    if group.weights[process] == 1:
        return group.members_of[process][0]
    owner = group.owner[task]
    found = owner if owner != ABSENT and group.process_of[owner] == process else ABSENT
    for copy in group.copies[task]:
        if copy.process == process:
            found = copy.member
    return found if found == ABSENT or group.reports[found] or not warms_up else ABSENT
