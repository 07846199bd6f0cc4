"""On which processes copies of tasks are: standbys, and warm-ups beside them.

A task has as many standbys as are configured, or one on each other process; a warm-up counts as one of them,
so that a standby which is to take over becomes the warm-up, and none is made in its place.

    kept       who has a standby; if there are too many, the ones that are furthest on
    new        who has the state: who gives up the task in this step, then who is furthest on;
               else who has fewest standbys. Of equal ones, who shares fewest tags with the others
    moved      from who has many to who has few: at once if the latter has caught up, else it warms up first

A standby that moves is no active task, so that these warm-ups come last, and whoever cannot be waited for is
given none: a task would have no copy for a while, for no more than evenness.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import lcm

from konvene.groups.assignors.highly_available.active_tasks import LOOKED_AT, Actives
from konvene.groups.assignors.highly_available.indexed_group import ABSENT, Group
from konvene.groups.assignors.highly_available.quotas import Level

__all__ = ["Copies"]


class Copies:
    """Processes of standbys in the making."""

    __slots__ = ("actives", "count", "givers", "group", "held", "load", "on", "warmups")

    def __init__(self, group: Group, actives: Actives) -> None:
        self.group, self.actives = group, actives
        self.on: list[list[int]] = [[] for _ in range(group.count)]
        """For each task the processes that have a standby of it."""
        self.held: list[list[int]] = [[] for _ in range(group.count)]
        """The same as it was before."""
        self.count = [0] * len(group.ids)
        """Standbys of each process, in the end."""
        unit = lcm(*set(group.weights))
        self.load = [unit // weight for weight in group.weights]
        """What one of them weighs."""
        self.warmups = actives.warmups
        """By task who warms it up, to have it or to have a standby of it."""
        self.givers: dict[int, int] = {}
        """By task, of the latter: who gives up its standby in the end."""
        for task, row in enumerate(group.copies):
            if row:
                self.held[task] = [copy.process for copy in row if not copy.warms_up]

    def keep_warmups(self) -> None:
        """Of standbys that are moving already, where that is of use still."""
        group, actives = self.group, self.actives
        if not actives.under_way or not actives.budget or not group.standbys:
            return
        count = [0] * len(group.ids)
        for task, held in enumerate(self.held):
            for process in held:
                if process not in (actives.at[task], self.warmups.get(task)):
                    count[process] += 1
        for _, task, to in actives.under_way:
            if task in self.warmups or not actives.budget:
                continue
            held = [process for process in self.held[task] if process != actives.at[task]]
            if len(held) < group.standbys:
                continue
            giver = max(held, key=lambda p: (count[p] * self.load[p], -p))
            if count[giver] * self.load[giver] > (count[to] + 1) * self.load[to]:
                count[giver] -= 1
                count[to] += 1
                self._warm_up(task, giver, to)

    def _warm_up(self, task: int, giver: int, to: int) -> None:
        self.warmups[task], self.givers[task] = to, giver
        self.actives.budget -= 1

    # As many as there should be ----------------------------------------------------------------------

    def assign(self) -> None:
        """Standbys of each task that has state."""
        group, at = self.group, self.actives.at
        if not group.standbys:
            return
        missing = []
        for task, is_stateful in enumerate(group.stateful):
            if not is_stateful:
                continue
            taken = (at[task], self.warmups.get(task, ABSENT))
            kept = [process for process in self.held[task] if process not in taken]
            if len(kept) > group.standbys:
                kept.sort(key=lambda p: (group.far(p, task), p))
                del kept[group.standbys :]
            self.on[task] = kept
            wanted = group.standbys - len(kept) - (taken[1] != ABSENT)
            if wanted > 0:
                heirs = self._with_state(task)
                kept += heirs[:wanted]
                missing += [task] * (wanted - len(heirs))
            for process in kept:
                self.count[process] += 1
        self._spread(missing)
        if len(group.ids) > 2:
            self._level()

    def _with_state(self, task: int) -> list[int]:
        """Who else has state, the best first."""
        group, on = self.group, self.on[task]
        owner = group.owner[task]
        some = {*group.states[task], *(copy.process for copy in group.copies[task])}
        gives_up = group.process_of[owner] if owner != ABSENT else ABSENT
        if gives_up != ABSENT:
            some.add(gives_up)
        some -= {self.actives.at[task], self.warmups.get(task, ABSENT), *on}
        if len(some) < 2:
            return list(some)
        return sorted(
            some,
            key=lambda p: (
                p != gives_up, group.far(p, task), self._clash(task, p), self.count[p] * self.load[p], p,
            ),
        )  # fmt: skip

    def _clash(self, task: int, process: int, without: int = ABSENT) -> int:
        """What a process would share with the others that have the task."""
        group = self.group
        if group.racks.is_trivial:
            return 0
        others = [self.actives.at[task], *self.on[task]]
        names = [group.names[group.members_of[p][0]] for p in others if p not in (process, without)]
        return group.racks.clash(group.names[group.members_of[process][0]], names)

    def _spread(self, tasks: list[int]) -> None:
        """To those who have fewest."""
        if not tasks:
            return
        group, count, load = self.group, self.count, self.load
        queue = [((n + 1) * each, p) for p, (n, each) in enumerate(zip(count, load, strict=True))]
        heapify(queue)
        for task in tasks:
            taken = (self.actives.at[task], self.warmups.get(task, ABSENT), *self.on[task])
            passed: list[tuple[int, int]] = []
            best = (0, 0, ABSENT)
            while queue and len(passed) < LOOKED_AT + len(taken):
                key, process = heappop(queue)
                passed.append((key, process))
                if process in taken:
                    continue
                clash = self._clash(task, process)
                if best[2] == ABSENT or (clash, key, process) < best:
                    best = (clash, key, process)
                if not clash or group.racks.is_trivial:
                    break
            _, key, process = best
            for one in passed:
                heappush(queue, one if one[1] != process else (key + load[process], process))
            self.on[task].append(process)
            count[process] += 1

    # As even as can be -------------------------------------------------------------------------------

    def _level(self) -> None:
        group, count = self.group, self.count
        for task, giver in self.givers.items():
            count[giver] -= 1
            count[self.warmups[task]] += 1
        if Level(list(count), group.weights).is_even:
            return
        changed = True
        while changed:
            changed = False
            rows: dict[int, list[int]] = {}
            for task, on in enumerate(self.on):
                for process in on:
                    rows.setdefault(process, []).append(task)
            queue = _Emptiest(count, self.load)
            for giver in sorted(rows, key=lambda p: (-count[p] * self.load[p], p)):
                for task in rows[giver]:
                    if count[giver] * self.load[giver] <= queue.least():
                        break
                    if self._may_change(giver, task):
                        changed |= self._relieve(giver, task, queue)

    def _may_change(self, giver: int, task: int) -> bool:
        """Not if nobody else has state, and nothing may warm up."""
        if giver not in self.held[task] or (self.actives.budget and task not in self.warmups):
            return True
        at, on = self.actives.at[task], self.on[task]
        return any(process != at and process not in on for process in self.group.states[task])

    def _relieve(self, giver: int, task: int, queue: _Emptiest) -> bool:
        """Let somebody with less have the standby instead, if that can be."""
        group, on, actives = self.group, self.on[task], self.actives
        taken = (actives.at[task], self.warmups.get(task, ABSENT), *on)
        limit = self.count[giver] * self.load[giver]
        if giver in self.held[task]:
            ready = [
                ((self.count[p] + 1) * self.load[p], p)
                for p in group.states[task]
                if p not in taken
                and (self.count[p] + 1) * self.load[p] < limit
                and group.has_caught_up(p, task)
            ]
            if ready:
                to = min(ready)[1]
            elif actives.budget and task not in self.warmups:
                to = queue.first(limit, taken, group.waits)
            else:
                return False
            at_once = bool(ready)
        else:
            to, at_once = queue.first(limit, taken, None), True
        if to == ABSENT or self._clash(task, to, giver) > self._clash(task, giver):
            return False
        if at_once:
            on[on.index(giver)] = to
        else:
            self._warm_up(task, giver, to)
        self.count[giver] -= 1
        self.count[to] += 1
        queue.changed(giver)
        queue.changed(to)
        return True


class _Emptiest:
    """Processes by how full they would be with one more."""

    __slots__ = ("count", "heap", "load")

    def __init__(self, count: list[int], load: list[int]) -> None:
        self.count, self.load = count, load
        self.heap = [((n + 1) * each, p) for p, (n, each) in enumerate(zip(count, load, strict=True))]
        heapify(self.heap)

    def __repr__(self) -> str:
        return f"<{len(self.heap)} of {len(self.count)} processes, the emptiest first>"

    def changed(self, process: int) -> None:
        """It has another number of tasks now. What is in the heap of before is passed over."""
        heappush(self.heap, ((self.count[process] + 1) * self.load[process], process))

    def _is_of_before(self) -> bool:
        key, process = self.heap[0]
        return key != (self.count[process] + 1) * self.load[process]

    def least(self) -> int:
        """How full the emptiest would be."""
        while self._is_of_before():
            heappop(self.heap)
        return self.heap[0][0]

    def first(self, limit: int, taken: tuple[int, ...], may: list[bool] | None) -> int:
        """The emptiest that would be less full than this, and may."""
        passed, found = [], ABSENT
        while self.heap and found == ABSENT:
            if self._is_of_before():
                heappop(self.heap)
                continue
            key, process = self.heap[0]
            if key >= limit:
                break
            if process not in taken and (may is None or may[process]):
                found = process
            else:
                passed.append(heappop(self.heap))
        for one in passed:
            heappush(self.heap, one)
        return found
