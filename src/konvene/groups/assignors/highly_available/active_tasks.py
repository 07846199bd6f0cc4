"""On which process each task is active, and which are to move when their copies have caught up.

First each task is where it can be at once:

    owner is there         there; unless it says that it is behind, and another process has caught up
    owner is gone          who has caught up; else who told most; else who has a copy of which nobody knows
                           how far it is; else, last of all, who has least
    no state               where it was, or last of all who has least

Then tasks with state are shared out evenly among processes (`highly_available_shares`), those without state
around them. What moves is chosen in this order:

    at once                to who has caught up
    at once                to processes that cannot be waited for, as they do not say how far they are
    when caught up         what warms up there already; then the copy that is furthest on; then what is
                           shortest, of which least is to be restored

The first two are done. Of the last only so many are begun as may warm up at a time, and the rest is no more
than a number: how many tasks a process is to have in the end. That number is what tasks without state are
shared out by, so that they move once, and not again when those with state arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import lcm

from konvene.groups.assignors.highly_available.indexed_group import ABSENT, Group
from konvene.groups.assignors.highly_available.quotas import Level

__all__ = ["Actives"]

LOOKED_AT = 32
"""Maximum number of equally loaded processes whose racks are compared."""


class Actives:
    """Processes of active tasks in the making."""

    __slots__ = ("at", "budget", "count", "group", "is_new", "level", "moving", "under_way", "warmups")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.at = [ABSENT] * group.count
        """For each task its process."""
        self.is_new = [False] * group.count
        """For each task whether it comes to where it is."""
        self.count = [0] * len(group.ids)
        """Tasks with state of each process."""
        self.budget = group.warmups
        """So many more may warm up."""
        self.warmups: dict[int, int] = {}
        """By task: the process that is to have it, and warms it up until then."""
        self._place()
        self.level = Level(self.count, group.weights)
        self.moving: list[int] = []
        """The tasks with state of who has too many."""
        if not self.level.is_even:
            self._move_at_once()
        self._settle()

    # Where tasks are now -----------------------------------------------------------------------------

    def _place(self) -> None:
        group, at, count = self.group, self.at, self.count
        orphans = []
        for task, owner in enumerate(group.owner):
            if owner != ABSENT:
                at[task] = process = group.process_of[owner]
                if group.stateful[task]:
                    if len(group.states[task]) > 1 and group.is_behind(owner, task):
                        self._rescue(task)
                    count[at[task]] += 1
            elif group.stateful[task]:
                orphans.append(task)
        strays = []
        for task in orphans:
            process = self._heir(task)
            if process == ABSENT:
                strays.append(task)
            else:
                self._put(task, process)
                count[process] += 1
        self._spread(strays, count)

    def _put(self, task: int, process: int) -> None:
        self.at[task], self.is_new[task] = process, True

    def _rescue(self, task: int) -> None:
        """Move a task whose owner is behind to a process that has caught up, if there is one."""
        others = [p for p in self.group.states[task] if p != self.at[task]]
        ready = [p for p in others if self.group.has_caught_up(p, task)]
        if ready and not self.group.has_caught_up(self.at[task], task):
            self._put(task, self._best(task, ready))

    def _heir(self, task: int) -> int:
        """Return the process for a task without an owner; `ABSENT` if no process has a copy."""
        group = self.group
        with_state = group.states[task]
        if with_state:
            ready = [p for p in with_state if group.has_caught_up(p, task)]
            if ready:
                return self._best(task, ready)
            furthest = min(group.far(p, task) for p in with_state)
            return self._best(task, [p for p in with_state if group.far(p, task) == furthest])
        return self._best(task, [copy.process for copy in group.copies[task]])

    def _best(self, task: int, processes: Sequence[int]) -> int:
        """Of equally good ones, the one with least for each member; then who has a copy in use, and then who
        is near."""
        if len(processes) < 2:
            return processes[0] if processes else ABSENT
        group, unit = self.group, lcm(*(self.group.weights[p] for p in processes))
        held = {copy.process for copy in group.copies[task]}
        return min(
            processes,
            key=lambda p: (
                self.count[p] * (unit // group.weights[p]), p not in held, not group.is_local(p, task), p,
            ),
        )  # fmt: skip

    def _spread(self, tasks: Iterable[int], count: list[int]) -> None:
        """Assign tasks one by one to the least loaded process."""
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
                while queue and queue[0][0] == key and len(passed) < LOOKED_AT:
                    passed.append(heappop(queue))
                    if group.is_local(passed[-1][1], task):
                        break
                if not group.is_local(passed[-1][1], task):
                    passed.reverse()
                _, process = passed.pop()
            self._put(task, process)
            count[process] += 1
            for one in passed:
                heappush(queue, one)
            heappush(queue, (key + load[process], process))

    # What moves at once ------------------------------------------------------------------------------

    def _move_at_once(self) -> None:
        group, level, at = self.group, self.level, self.at
        giving = list(map(level.gives, range(len(group.ids))))
        taking = list(map(level.takes, range(len(group.ids))))
        self.moving = [t for t, p in enumerate(at) if giving[p] and group.stateful[t]]
        ready = [
            (not self.is_new[task], self._is_idle(task, to), not group.is_local(to, task), task, to)
            for task in self.moving
            for to in group.states[task]
            if taking[to] and group.has_caught_up(to, task)
        ]
        for *_, task, to in sorted(ready):
            self._move(task, to)
        cold = [p for p in range(len(group.ids)) if level.takes(p) and not group.waits[p]]
        if cold:
            self._move_cold(cold)

    def _is_idle(self, task: int, process: int) -> int:
        """0 for who warms a task up, 1 for who has a standby of it, 2 for who only has its state."""
        return min(
            (1 - copy.warms_up for copy in self.group.copies[task] if copy.process == process), default=2
        )

    def _move(self, task: int, to: int) -> bool:
        """If it is still of use."""
        process = self.at[task]
        if process == to or not self.level.gives(process) or not self.level.takes(to):
            return False
        self.level.move(process, to)
        self._put(task, to)
        return True

    def _move_cold(self, cold: list[int]) -> None:
        """To those who cannot be waited for."""
        group, taking = self.group, set(cold)
        known = [
            (not self.is_new[task], group.far(to, task), task, to)
            for task in self.moving
            for to in sorted({*group.states[task], *(copy.process for copy in group.copies[task])} & taking)
        ]
        for *_, task, to in sorted(known):
            self._move(task, to)
        rest = [task for task in self.moving if self.level.gives(self.at[task])]
        self._deal(_by_member(group, rest, self.at, self.is_new), cold)

    def _deal(self, tasks: list[int], takers: list[int]) -> None:
        """To these, as long as they take, first what is near."""
        group, level = self.group, self.level
        for near in (True, False):
            if near and group.racks.is_trivial:
                continue
            left = []
            for task in tasks:
                if not level.gives(self.at[task]):
                    continue
                if not level.takes(takers[0]):
                    takers = [p for p in takers if level.takes(p)]
                    if not takers:
                        return
                if not near:
                    self._move(task, takers[0])
                    continue
                to = next((p for p in takers if level.takes(p) and group.is_local(p, task)), ABSENT)
                if to == ABSENT:
                    left.append(task)
                else:
                    self._move(task, to)
            if near:
                tasks = left

    # What moves later --------------------------------------------------------------------------------

    def _settle(self) -> None:
        """How many each process is to have in the end; keep what is under way, and begin more."""
        group, at, level = self.group, self.at, self.level
        self.under_way = under_way = sorted(
            (group.far(copy.process, task), task, copy.process)
            for task, row in enumerate(group.copies)
            for copy in row
            if copy.warms_up and copy.process != at[task] and group.reports[copy.member]
            and not group.has_caught_up(copy.process, task)
        )  # fmt: skip
        expected = list(self.count)
        for _, task, to in under_way[: self.budget]:
            if level.gives(at[task]):
                expected[at[task]] -= 1
            if level.takes(to):
                expected[to] += 1
        if not level.is_even or level.least != level.most:
            level.settle(expected)
        final = list(level.least)
        for _, task, to in under_way:
            self._warm_up(task, to)
        self.count = final

    def begin_warmups(self) -> None:
        """Others than those which are under way."""
        if not self.budget or self.level.is_even:
            return
        group, level = self.group, self.level
        near = [
            (group.far(to, task), not self.is_new[task], not group.is_local(to, task), task, to)
            for task in self.moving
            if level.gives(self.at[task])
            for to in sorted({*group.states[task], *(copy.process for copy in group.copies[task])})
            if level.takes(to) and group.waits[to]
        ]
        for *_, task, to in sorted(near):
            if not self._has_room(task, to):
                break
        while self.budget:
            takers = [p for p in range(len(group.ids)) if level.takes(p) and group.waits[p]]
            if not takers or not self._begin_any(self._emptiest(takers)):
                break

    def _has_room(self, task: int, to: int) -> bool:
        self._warm_up(task, to)
        return self.budget > 0

    def _warm_up(self, task: int, to: int) -> bool:
        """If it is of use, and one more may."""
        process = self.at[task]
        if (
            not self.budget
            or task in self.warmups
            or process == to
            or not (self.level.gives(process) and self.level.takes(to))
        ):
            return False
        self.level.move(process, to)
        self.warmups[task] = to
        self.budget -= 1
        return True

    def _emptiest(self, takers: list[int]) -> int:
        weights, count = self.group.weights, self.level.count
        unit = lcm(*{weights[p] for p in takers})
        return min(takers, key=lambda p: ((count[p] + 1) * (unit // weights[p]), p))

    def _begin_any(self, to: int) -> bool:
        """What is restored soonest by who has nothing of it, so that the next one has its turn."""
        group, level = self.group, self.level
        some = [t for t in self.moving if t not in self.warmups and level.gives(self.at[t])]
        order = _by_member(group, some, self.at, self.is_new)
        local = [task for task in order if group.is_local(to, task)] or order
        return bool(local) and self._warm_up(min(local, key=group.length), to)

    # Tasks without state -----------------------------------------------------------------------------

    def share_stateless(self) -> None:
        """Around those that have state, where these are to be in the end."""
        group, at = self.group, self.at
        total, tasks, strays = list(self.count), [], []
        for task, process in enumerate(at):
            if not group.stateful[task]:
                if process == ABSENT:
                    strays.append(task)
                else:
                    total[process] += 1
                tasks.append(task)
        self._spread(strays, total)
        level = self.level = Level(total, group.weights)
        if level.is_even:
            return
        movable = [task for task in tasks if level.gives(at[task])]
        takers = [p for p in range(len(group.ids)) if level.takes(p)]
        self._deal(_by_member(group, movable, at, self.is_new), takers)


def _by_member(group: Group, tasks: Iterable[int], at: Sequence[int], is_new: Sequence[bool]) -> list[int]:
    """In the order in which members would give them: what comes anyway first, then one from each member in
    turn, beginning with those that have most."""
    rows: dict[int, list[int]] = {}
    order = []
    for task in tasks:
        if is_new[task]:
            order.append(task)
        else:
            rows.setdefault(group.owner[task], []).append(task)
    ranked = []
    for member, row in rows.items():
        for nth, task in enumerate(row):
            ranked.append((nth - len(row), member, task))
    return order + [task for _, _, task in sorted(ranked)]
