"""The process of each active task, and the tasks that move once their copies have caught up.

First each task gets a process where it can run at once:

    its owner is alive      the owner's process; if the owner reports a lag and another process has caught up,
                            that one
    its owner has left      a process that has caught up; else the one with the least known lag or the highest
                            offset; else one with a copy of unknown progress; else the least loaded one
    stateless               the owner's process, or the least loaded one

Then stateful tasks are balanced over processes (`quotas`), and stateless tasks around them. Stateful tasks
move in this order:

    at once                 to processes that have caught up
    at once                 to processes without a reporting member, which cannot be waited for
    after a warm-up         ongoing warm-ups; then to the most advanced copies; then the tasks with the least
                            to restore

The assignment has the moves at once, and as many warm-ups as are allowed simultaneously. Moves beyond that
only count towards the final number of tasks of each process. Stateless tasks are balanced for these final
numbers, so that they do not move again when the stateful ones arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import lcm

from konvene.groups.assignors.highly_available.indexed_group import ABSENT, IndexedGroup
from konvene.groups.assignors.highly_available.quotas import Balance

__all__ = ["ActiveTasks"]

MAX_COMPARED = 32
"""Maximum number of equally loaded processes whose racks are compared."""


class ActiveTasks:
    """A builder of the assignment of active tasks to processes, and of the warm-ups before they move."""

    __slots__ = (
        "balance",
        "count",
        "group",
        "is_moved",
        "movable",
        "ongoing_warmups",
        "process_of",
        "warmups",
        "warmups_left",
    )

    def __init__(self, group: IndexedGroup) -> None:
        self.group = group
        self.process_of = [ABSENT] * group.count
        """By task: its process."""
        self.is_moved = [False] * group.count
        """By task: whether it moves to its process in this assignment."""
        self.count = [0] * len(group.process_ids)
        """By process: number of its stateful tasks; in the end, after all moves."""
        self.warmups_left = group.warmups
        """Number of warm-ups that may still be added."""
        self.warmups: dict[int, int] = {}
        """By task: process that warms it up."""
        self._place_tasks()
        self.balance = Balance(self.count, group.weights)
        self.movable: list[int] = []
        """Stateful tasks of processes that have more than their quota."""
        if not self.balance.is_even:
            self._move_immediately()
        self._plan_final_counts()

    # Tasks that can run at once -----------------------------------------------------------------------------

    def _place_tasks(self) -> None:
        group, process_of, count = self.group, self.process_of, self.count
        unowned = []
        for task, owner in enumerate(group.owner):
            if owner != ABSENT:
                process_of[task] = process = group.process_of[owner]
                if group.stateful[task]:
                    if len(group.state_processes[task]) > 1 and group.is_behind(owner, task):
                        self._move_from_lagging_owner(task)
                    count[process_of[task]] += 1
            elif group.stateful[task]:
                unowned.append(task)
        unassigned = []
        for task in unowned:
            process = self._takeover_process(task)
            if process == ABSENT:
                unassigned.append(task)
            else:
                self._assign(task, process)
                count[process] += 1
        self._assign_to_least_loaded(unassigned, count)

    def _assign(self, task: int, process: int) -> None:
        self.process_of[task], self.is_moved[task] = process, True

    def _move_from_lagging_owner(self, task: int) -> None:
        """Move a task whose owner is behind to a process that has caught up, if there is one."""
        others = [p for p in self.group.state_processes[task] if p != self.process_of[task]]
        ready = [p for p in others if self.group.has_caught_up(p, task)]
        if ready and not self.group.has_caught_up(self.process_of[task], task):
            self._assign(task, self._best_process(task, ready))

    def _takeover_process(self, task: int) -> int:
        """Return the process that takes over a task without an owner; `ABSENT` if none has a copy of it.

        It is one that has caught up, else one with the most advanced copy, else one with an unreported copy;
        at a tie the least loaded one.
        """
        group = self.group
        with_state = group.state_processes[task]
        if with_state:
            ready = [p for p in with_state if group.has_caught_up(p, task)]
            if ready:
                return self._best_process(task, ready)
            furthest = min(group.progress_rank(p, task) for p in with_state)
            most_advanced = [p for p in with_state if group.progress_rank(p, task) == furthest]
            return self._best_process(task, most_advanced)
        return self._best_process(task, [copy.process for copy in group.copies[task]])

    def _best_process(self, task: int, processes: Sequence[int]) -> int:
        """Return which of these processes is to run a task: the one with the fewest tasks per member.

        At a tie it is one with a standby or warm-up of the task, then one in a local rack.
        """
        if len(processes) < 2:
            return processes[0] if processes else ABSENT
        group, unit = self.group, lcm(*(self.group.weights[p] for p in processes))
        copy_processes = {copy.process for copy in group.copies[task]}
        return min(
            processes,
            key=lambda p: (
                self.count[p] * (unit // group.weights[p]),
                p not in copy_processes,
                not group.is_local(p, task),
                p,
            ),
        )

    def _assign_to_least_loaded(self, tasks: Iterable[int], count: list[int]) -> None:
        """Assign tasks one by one to the process that has the fewest tasks per member at that time.

        `count`: the number of tasks by process, from which the load is computed. Updated.
        """
        group = self.group
        unit = lcm(*set(group.weights))
        load = [unit // weight for weight in group.weights]
        queue = [((n + 1) * each, p) for p, (n, each) in enumerate(zip(count, load, strict=True))]
        heapify(queue)
        for task in tasks:
            key, process = heappop(queue)
            passed = []
            if not group.racks.is_trivial and not group.is_local(process, task):
                passed.append((key, process))
                while queue and queue[0][0] == key and len(passed) < MAX_COMPARED:
                    passed.append(heappop(queue))
                    if group.is_local(passed[-1][1], task):
                        break
                if not group.is_local(passed[-1][1], task):
                    passed.reverse()
                _, process = passed.pop()
            self._assign(task, process)
            count[process] += 1
            for entry in passed:
                heappush(queue, entry)
            heappush(queue, (key + load[process], process))

    # Immediate moves ---------------------------------------------------------------------------------

    def _move_immediately(self) -> None:
        group, balance, process_of = self.group, self.balance, self.process_of
        may_give = list(map(balance.may_give, range(len(group.process_ids))))
        may_take = list(map(balance.may_take, range(len(group.process_ids))))
        self.movable = [t for t, p in enumerate(process_of) if may_give[p] and group.stateful[t]]
        ready = [
            (
                not self.is_moved[task],
                self._copy_rank(task, target),
                not group.is_local(target, task),
                task,
                target,
            )
            for task in self.movable
            for target in group.state_processes[task]
            if may_take[target] and group.has_caught_up(target, task)
        ]
        for *_, task, target in sorted(ready):
            self._move_if_useful(task, target)
        cold_processes = [
            p for p in range(len(group.process_ids)) if balance.may_take(p) and not group.can_wait[p]
        ]
        if cold_processes:
            self._move_without_warmup(cold_processes)

    def _copy_rank(self, task: int, process: int) -> int:
        """Return the rank of a process's copy of a task: 0 for a warm-up, 1 for a standby, 2 for neither."""
        return min(
            (1 - copy.warms_up for copy in self.group.copies[task] if copy.process == process), default=2
        )

    def _move_if_useful(self, task: int, target: int) -> bool:
        """Move a task to the process `target` if that still improves the balance; return whether it moved."""
        process = self.process_of[task]
        if process == target or not self.balance.may_give(process) or not self.balance.may_take(target):
            return False
        self.balance.move(process, target)
        self._assign(task, target)
        return True

    def _move_without_warmup(self, cold_processes: list[int]) -> None:
        """Move tasks at once to the `cold_processes`, until these have their quotas.

        Members of these processes report no offsets, so a warm-up there would never end. Tasks of which such
        a process has a copy come first, the most advanced copies before others.
        """
        group, targets = self.group, set(cold_processes)
        candidates = [
            (not self.is_moved[task], group.progress_rank(target, task), task, target)
            for task in self.movable
            for target in sorted(
                {*group.state_processes[task], *(copy.process for copy in group.copies[task])} & targets
            )
        ]
        for *_, task, target in sorted(candidates):
            self._move_if_useful(task, target)
        remaining = [task for task in self.movable if self.balance.may_give(self.process_of[task])]
        self._hand_out(
            _by_owner_round_robin(group, remaining, self.process_of, self.is_moved), cold_processes
        )

    def _hand_out(self, tasks: list[int], takers: list[int]) -> None:
        """Move tasks to the processes `takers` until these have their quotas, rack-local tasks first.

        A task stays if its process has no more tasks than its quota.
        """
        group, balance = self.group, self.balance
        for local_only in (True, False):
            if local_only and group.racks.is_trivial:
                continue
            others = []
            for task in tasks:
                if not balance.may_give(self.process_of[task]):
                    continue
                if not balance.may_take(takers[0]):
                    takers = [p for p in takers if balance.may_take(p)]
                    if not takers:
                        return
                if not local_only:
                    self._move_if_useful(task, takers[0])
                    continue
                target = next((p for p in takers if balance.may_take(p) and group.is_local(p, task)), ABSENT)
                if target == ABSENT:
                    others.append(task)
                else:
                    self._move_if_useful(task, target)
            if local_only:
                tasks = others

    # Warm-ups ----------------------------------------------------------------------------------------

    def _plan_final_counts(self) -> None:
        """Determine how many stateful tasks each process will have when all moves have ended.

        Ongoing warm-ups that bring the processes closer to these numbers are continued, others end.
        """
        group, process_of, balance = self.group, self.process_of, self.balance
        self.ongoing_warmups = ongoing_warmups = sorted(
            (group.progress_rank(copy.process, task), task, copy.process)
            for task, copies in enumerate(group.copies)
            for copy in copies
            if copy.warms_up and copy.process != process_of[task] and group.reports[copy.member]
            and not group.has_caught_up(copy.process, task)
        )  # fmt: skip
        expected = list(self.count)
        for _, task, target in ongoing_warmups[: self.warmups_left]:
            if balance.may_give(process_of[task]):
                expected[process_of[task]] -= 1
            if balance.may_take(target):
                expected[target] += 1
        if not balance.is_even or balance.min_quota != balance.max_quota:
            balance.fix_quotas(expected)
        final = list(balance.min_quota)
        for _, task, target in ongoing_warmups:
            self._start_warmup(task, target)
        self.count = final

    def start_warmups(self) -> None:
        """Start new warm-ups that improve the balance, up to the configured number in progress."""
        if not self.warmups_left or self.balance.is_even:
            return
        group, balance = self.group, self.balance
        candidates = [
            (
                group.progress_rank(target, task),
                not self.is_moved[task],
                not group.is_local(target, task),
                task,
                target,
            )
            for task in self.movable
            if balance.may_give(self.process_of[task])
            for target in sorted(
                {*group.state_processes[task], *(copy.process for copy in group.copies[task])}
            )
            if balance.may_take(target) and group.can_wait[target]
        ]
        for *_, task, target in sorted(candidates):
            self._start_warmup(task, target)
            if not self.warmups_left:
                break
        while self.warmups_left:
            takers = [p for p in range(len(group.process_ids)) if balance.may_take(p) and group.can_wait[p]]
            if not takers or not self._start_shortest_restore(self._least_loaded(takers)):
                break

    def _start_warmup(self, task: int, target: int) -> bool:
        """Start to warm up a task on the process `target` if it improves the balance and one more is allowed.

        Return whether it started.
        """
        process = self.process_of[task]
        if (
            not self.warmups_left
            or task in self.warmups
            or process == target
            or not (self.balance.may_give(process) and self.balance.may_take(target))
        ):
            return False
        self.balance.move(process, target)
        self.warmups[task] = target
        self.warmups_left -= 1
        return True

    def _least_loaded(self, takers: list[int]) -> int:
        weights, count = self.group.weights, self.balance.counts
        unit = lcm(*{weights[p] for p in takers})
        return min(takers, key=lambda p: ((count[p] + 1) * (unit // weights[p]), p))

    def _start_shortest_restore(self, target: int) -> bool:
        """Warm up a task on the process `target`, which has state of none: the one with the least to restore.

        Return whether a warm-up was started; it is not if no task may move there.
        """
        group, balance = self.group, self.balance
        tasks = [t for t in self.movable if t not in self.warmups and balance.may_give(self.process_of[t])]
        order = _by_owner_round_robin(group, tasks, self.process_of, self.is_moved)
        local = [task for task in order if group.is_local(target, task)] or order
        return bool(local) and self._start_warmup(min(local, key=group.restore_cost), target)

    # Stateless tasks ---------------------------------------------------------------------------------

    def assign_stateless(self) -> None:
        """Assign the stateless tasks so that they balance the processes' final numbers of stateful tasks."""
        group, process_of = self.group, self.process_of
        total, tasks, unassigned = list(self.count), [], []
        for task, process in enumerate(process_of):
            if not group.stateful[task]:
                if process == ABSENT:
                    unassigned.append(task)
                else:
                    total[process] += 1
                tasks.append(task)
        self._assign_to_least_loaded(unassigned, total)
        balance = self.balance = Balance(total, group.weights)
        if balance.is_even:
            return
        movable = [task for task in tasks if balance.may_give(process_of[task])]
        takers = [p for p in range(len(group.process_ids)) if balance.may_take(p)]
        self._hand_out(_by_owner_round_robin(group, movable, process_of, self.is_moved), takers)


def _by_owner_round_robin(
    group: IndexedGroup, tasks: Iterable[int], process_of: Sequence[int], is_moved: Sequence[bool]
) -> list[int]:
    """Return the tasks in the order in which they should be taken from their owners.

    Tasks that have moved already (`is_moved`) come first. The others are taken from the owners of the most
    tasks first, so that the numbers of tasks that remain with each owner stay as equal as possible.
    """
    by_owner: dict[int, list[int]] = {}
    order = []
    for task in tasks:
        if is_moved[task]:
            order.append(task)
        else:
            by_owner.setdefault(group.owner[task], []).append(task)
    ranked = []
    for member, owned in by_owner.items():
        for index, task in enumerate(owned):
            ranked.append((index - len(owned), member, task))
    return order + [task for _, _, task in sorted(ranked)]
