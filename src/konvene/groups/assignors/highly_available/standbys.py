"""Assign standbys to processes, and warm up a standby on its next process before it moves there.

A task has the configured number of standbys, or one on each other process if these are fewer. A warm-up
counts as a standby: a standby that will become active is turned into the warm-up, and not replaced.

    kept       current standbys; if there are too many, the most advanced ones
    new        on processes with state of the task: the one that gives up the active task, then the most
               advanced ones; else on those with the fewest standbys. At a tie, the process that shares the
               fewest client tags with the task's other processes
    moved      from processes with many standbys to those with few: at once if the target has caught up, else
               after a warm-up

Warm-ups of standbys have the lowest priority, and only processes that report offsets get them: otherwise a
task would be without a caught-up copy for a while, only for a better balance.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import lcm

from konvene.groups.assignors.highly_available.active_tasks import MAX_COMPARED, ActiveTasks
from konvene.groups.assignors.highly_available.indexed_group import ABSENT, IndexedGroup
from konvene.groups.assignors.highly_available.quotas import Balance

__all__ = ["Standbys"]


class Standbys:
    """A builder of the assignment of standbys to processes, and of the warm-ups before standbys move.

    While a standby is warmed up on the process to which it moves, the previous process keeps its copy.
    """

    __slots__ = ("actives", "counts", "current", "group", "processes_of", "replaced", "unit_load", "warmups")

    def __init__(self, group: IndexedGroup, actives: ActiveTasks) -> None:
        self.group, self.actives = group, actives
        self.processes_of: list[list[int]] = [[] for _ in range(group.count)]
        """By task: processes of its standbys."""
        self.current: list[list[int]] = [[] for _ in range(group.count)]
        """By task: processes of its current standbys."""
        self.counts = [0] * len(group.process_ids)
        """By process: number of its standbys after all moves."""
        unit = lcm(*set(group.weights))
        self.unit_load = [unit // weight for weight in group.weights]
        """By process: load per member that one standby adds, in integer units."""
        self.warmups = actives.warmups
        """By task: process that warms it up, as active task or as standby."""
        self.replaced: dict[int, int] = {}
        """By task whose standby moves after a warm-up: process that has the standby until then."""
        for task, copies in enumerate(group.copies):
            if copies:
                self.current[task] = [copy.process for copy in copies if not copy.warms_up]

    def keep_warmups(self) -> None:
        """Continue ongoing warm-ups of tasks whose standby moves, if the move still improves the balance.

        A standby that moves is first warmed up on its next process: that one restores the state while the
        previous process keeps its copy.
        """
        group, actives = self.group, self.actives
        if not actives.ongoing_warmups or not actives.warmups_left or not group.standbys:
            return
        counts = [0] * len(group.process_ids)
        for task, current in enumerate(self.current):
            for process in current:
                if process not in (actives.process_of[task], self.warmups.get(task)):
                    counts[process] += 1
        for _, task, target in actives.ongoing_warmups:
            if task in self.warmups or not actives.warmups_left:
                continue
            current = [process for process in self.current[task] if process != actives.process_of[task]]
            if len(current) < group.standbys:
                continue
            source = max(current, key=lambda p: (counts[p] * self.unit_load[p], -p))
            if counts[source] * self.unit_load[source] > (counts[target] + 1) * self.unit_load[target]:
                counts[source] -= 1
                counts[target] += 1
                self._start_warmup(task, source, target)

    def _start_warmup(self, task: int, source: int, target: int) -> None:
        self.warmups[task], self.replaced[task] = target, source
        self.actives.warmups_left -= 1

    # The configured number --------------------------------------------------------------------------

    def assign(self) -> None:
        """Assign the configured number of standbys of each stateful task, and balance them over processes."""
        group, process_of = self.group, self.actives.process_of
        if not group.standbys:
            return
        missing = []
        for task, is_stateful in enumerate(group.stateful):
            if not is_stateful:
                continue
            excluded = (process_of[task], self.warmups.get(task, ABSENT))
            kept = [process for process in self.current[task] if process not in excluded]
            if len(kept) > group.standbys:
                kept.sort(key=lambda p: (group.progress_rank(p, task), p))
                del kept[group.standbys :]
            self.processes_of[task] = kept
            wanted = group.standbys - len(kept) - (excluded[1] != ABSENT)
            if wanted > 0:
                additional = self._processes_with_state(task)
                kept += additional[:wanted]
                missing += [task] * (wanted - len(additional))
            for process in kept:
                self.counts[process] += 1
        self._spread(missing)
        if len(group.process_ids) > 2:
            self._balance()

    def _processes_with_state(self, task: int) -> list[int]:
        """Return the processes that have state of a task and are not assigned a copy of it yet.

        They are in the order in which they should get a standby: the process that gives up the active task,
        then the most advanced copies.
        """
        group, standbys = self.group, self.processes_of[task]
        owner = group.owner[task]
        candidates = {*group.state_processes[task], *(copy.process for copy in group.copies[task])}
        last_process = group.process_of[owner] if owner != ABSENT else ABSENT
        if last_process != ABSENT:
            candidates.add(last_process)
        candidates -= {self.actives.process_of[task], self.warmups.get(task, ABSENT), *standbys}
        if len(candidates) < 2:
            return list(candidates)
        return sorted(
            candidates,
            key=lambda p: (
                p != last_process,
                group.progress_rank(p, task),
                self._tag_clash(task, p),
                self.counts[p] * self.unit_load[p],
                p,
            ),
        )

    def _tag_clash(self, task: int, process: int, without: int = ABSENT) -> int:
        """Return how much the client tags of a process clash with those of the task's other processes.

        `without`: one of these processes, which is ignored.
        """
        group = self.group
        if group.racks.is_trivial:
            return 0
        others = [self.actives.process_of[task], *self.processes_of[task]]
        names = [group.member_ids[group.members_of[p][0]] for p in others if p not in (process, without)]
        return group.racks.clash(group.member_ids[group.members_of[process][0]], names)

    def _spread(self, tasks: list[int]) -> None:
        """Assign one more standby of each of these tasks to a process without a copy of it.

        Of the processes with the fewest standbys per member it is the one with the least tags in common with
        the task's other processes. `tasks`: a task is listed once for each standby that it lacks.
        """
        if not tasks:
            return
        group, counts, unit_load = self.group, self.counts, self.unit_load
        heap = [((n + 1) * each, p) for p, (n, each) in enumerate(zip(counts, unit_load, strict=True))]
        heapify(heap)
        for task in tasks:
            excluded = (
                self.actives.process_of[task],
                self.warmups.get(task, ABSENT),
                *self.processes_of[task],
            )
            passed: list[tuple[int, int]] = []
            best = (0, 0, ABSENT)
            while heap and len(passed) < MAX_COMPARED + len(excluded):
                key, process = heappop(heap)
                passed.append((key, process))
                if process in excluded:
                    continue
                clash = self._tag_clash(task, process)
                if best[2] == ABSENT or (clash, key, process) < best:
                    best = (clash, key, process)
                if not clash or group.racks.is_trivial:
                    break
            _, key, process = best
            for entry in passed:
                heappush(heap, entry if entry[1] != process else (key + unit_load[process], process))
            self.processes_of[task].append(process)
            counts[process] += 1

    # Balance -----------------------------------------------------------------------------------------

    def _balance(self) -> None:
        group, counts = self.group, self.counts
        for task, source in self.replaced.items():
            counts[source] -= 1
            counts[self.warmups[task]] += 1
        if Balance(list(counts), group.weights).is_even:
            return
        changed = True
        while changed:
            changed = False
            by_process: dict[int, list[int]] = {}
            for task, processes in enumerate(self.processes_of):
                for process in processes:
                    by_process.setdefault(process, []).append(task)
            queue = _LeastLoaded(counts, self.unit_load)
            for source in sorted(by_process, key=lambda p: (-counts[p] * self.unit_load[p], p)):
                for task in by_process[source]:
                    if counts[source] * self.unit_load[source] <= queue.least():
                        break
                    if self._can_move(source, task):
                        changed |= self._try_move(source, task, queue)

    def _can_move(self, source: int, task: int) -> bool:
        """Return whether a task's standby may move away from the process `source`.

        It may if and only if the standby is not on `source` yet but only assigned to it; or one more warm-up
        is allowed, and the task has none; or a process that is assigned no copy of the task has its state.
        """
        if source not in self.current[task] or (self.actives.warmups_left and task not in self.warmups):
            return True
        active, standbys = self.actives.process_of[task], self.processes_of[task]
        return any(
            process != active and process not in standbys for process in self.group.state_processes[task]
        )

    def _try_move(self, source: int, task: int, processes: _LeastLoaded) -> bool:
        """Move a task's standby from `source` to a less loaded process, at once or after a warm-up.

        Return whether it moved: not if no process has a lower load, or each one clashes with more tags.
        `processes`: all processes, by load.
        """
        group, standbys, actives = self.group, self.processes_of[task], self.actives
        excluded = (actives.process_of[task], self.warmups.get(task, ABSENT), *standbys)
        limit = self.counts[source] * self.unit_load[source]
        if source in self.current[task]:
            ready = [
                ((self.counts[p] + 1) * self.unit_load[p], p)
                for p in group.state_processes[task]
                if p not in excluded
                and (self.counts[p] + 1) * self.unit_load[p] < limit
                and group.has_caught_up(p, task)
            ]
            if ready:
                target = min(ready)[1]
            elif actives.warmups_left and task not in self.warmups:
                target = processes.first(limit, excluded, group.can_wait)
            else:
                return False
            immediately = bool(ready)
        else:
            target, immediately = processes.first(limit, excluded, None), True
        if target == ABSENT or self._tag_clash(task, target, source) > self._tag_clash(task, source):
            return False
        if immediately:
            standbys[standbys.index(source)] = target
        else:
            self._start_warmup(task, source, target)
        self.counts[source] -= 1
        self.counts[target] += 1
        processes.changed(source)
        processes.changed(target)
        return True


class _LeastLoaded:
    """A heap of processes by their load with one more standby; outdated entries are skipped."""

    __slots__ = ("counts", "heap", "unit_load")

    def __init__(self, counts: list[int], unit_load: list[int]) -> None:
        self.counts, self.unit_load = counts, unit_load
        self.heap = [((n + 1) * each, p) for p, (n, each) in enumerate(zip(counts, unit_load, strict=True))]
        heapify(self.heap)

    def __repr__(self) -> str:
        return f"<{len(self.heap)} entries of {len(self.counts)} processes>"

    def changed(self, process: int) -> None:
        """Update the load of a process after its number of standbys has changed."""
        heappush(self.heap, ((self.counts[process] + 1) * self.unit_load[process], process))

    def _is_outdated(self) -> bool:
        key, process = self.heap[0]
        return key != (self.counts[process] + 1) * self.unit_load[process]

    def least(self) -> int:
        """Return the load that the least loaded process would have with one more standby."""
        while self._is_outdated():
            heappop(self.heap)
        return self.heap[0][0]

    def first(self, limit: int, excluded: tuple[int, ...], allowed: list[bool] | None) -> int:
        """Return the least loaded process that would stay below the load `limit` with one more standby.

        `ABSENT` if there is none. `allowed`: by process, whether it may be returned; None allows all. The
        `excluded` ones are never returned.
        """
        passed, found = [], ABSENT
        while self.heap and found == ABSENT:
            if self._is_outdated():
                heappop(self.heap)
                continue
            key, process = self.heap[0]
            if key >= limit:
                break
            if process not in excluded and (allowed is None or allowed[process]):
                found = process
            else:
                passed.append(heappop(self.heap))
        for entry in passed:
            heappush(self.heap, entry)
        return found
