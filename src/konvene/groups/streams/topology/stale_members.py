"""Keep new tasks away from members that still run an older topology epoch (KIP-1071).

While an application is upgraded to another topology, instance by instance, some members still run the one
before: they are stale. They can run the tasks that they have, but possibly not others, or the same in other
roles. So the tasks that an assignor gives to a stale member are handled as follows:

    one that it owns in this role     stays
    another active task               stays with its owner if it is stateful or if all members are stale; else
                                      goes to an up-to-date member
    another standby                   goes to a process without a copy of the task: stays with a stale member
                                      that owns it, else goes to an up-to-date member
    another warm-up                   is dropped: the task was to become active there

Among up-to-date members the order is: those with a standby of the task, those that warm it up, those with the
fewest active tasks. A standby that became active is replaced elsewhere. A stateless task moves at once, since
an assignor that moves it wants it moved; a stateful one would start with no state. If no member is up to
date, a task without an owner waits for one that is; if no process is left, there are fewer standbys.

Assignors do not know of this. A warm-up that one assigns to a stale member has no use: once its copy has
caught up, the task stays with its owner, and the copy is dropped or becomes a standby. Apache Kafka 4.4
cannot change a topology, and so has nothing like it: this applies only with `konvene.streams.mode` = `kip`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush

from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Tasks,
)
from konvene.groups.streams.current_assignment import Role, Unit, units

__all__ = ["withhold_new_tasks"]

Task = tuple[str, int]


def withhold_new_tasks(
    stale: Collection[str], spec: GroupSpec, given: GroupAssignment, is_stateful: Callable[[str], bool]
) -> GroupAssignment:
    """Return the assignment `given`, changed so that stale members get only tasks that they already own.

    `is_stateful`: returns by subtopology id whether its tasks have state.
    """
    reassignment = _Reassignment(spec, given, stale)
    actives, standbys = reassignment.withdraw_new()
    for task in sorted(actives):
        if reassignment.assign_active(task, is_stateful=is_stateful(task[0])):
            standbys.append(task)
    for task in sorted(standbys):
        reassignment.assign_standby(task)
    return reassignment.assignment()


class _Reassignment:
    """An assignment while tasks are moved away from stale members, indexed by member and by process."""

    def __init__(self, spec: GroupSpec, given: GroupAssignment, stale: Collection[str]) -> None:
        self.spec = spec
        self.given = given
        self.stale = frozenset(stale)
        self.current = sorted(spec.members.keys() - set(stale))
        self.assigned = {name: _units(given.get(name, NOTHING)) for name in spec.members}
        self.changed: set[str] = set()
        self.on_process: dict[tuple[str, Task], tuple[str, Unit]] = {}
        """The unit that a process has of a task, and the member that has it."""
        self.actives = {
            name: sum(unit[0] is Role.ACTIVE for unit in assigned) for name, assigned in self.assigned.items()
        }
        self.owners: dict[Unit, list[str]] = {}
        """The current owners of each unit."""
        self.copies: dict[Unit, set[str]] = {}
        """The up-to-date members that are given a standby or warm-up unit."""
        for name in sorted(spec.members):
            for unit in sorted(_units(spec.members[name].assigned)):
                self.owners.setdefault(unit, []).append(name)
            for unit in self.assigned[name]:
                self.on_process[self._process(name), unit[1:]] = name, unit
        for name in self.current:
            for unit in self.assigned[name]:
                if unit[0] is not Role.ACTIVE:
                    self.copies.setdefault(unit, set()).add(name)
        self.lightest = [self._load(name) for name in self.current]
        """A heap of the up-to-date members' loads. Outdated entries are skipped when popped."""
        heapify(self.lightest)

    def _process(self, name: str) -> str:
        return self.spec.members[name].process_id

    def _remove(self, name: str, unit: Unit) -> None:
        self.assigned[name].remove(unit)
        self.on_process.pop((self._process(name), unit[1:]), None)
        self.actives[name] -= unit[0] is Role.ACTIVE
        self.copies.get(unit, set()).discard(name)
        self._mark_changed(name)

    def _add(self, name: str, unit: Unit) -> None:
        self.assigned[name].add(unit)
        self.on_process[self._process(name), unit[1:]] = name, unit
        self.actives[name] += unit[0] is Role.ACTIVE
        self._mark_changed(name)

    def _mark_changed(self, name: str) -> None:
        self.changed.add(name)
        if name not in self.stale:
            heappush(self.lightest, self._load(name))

    def withdraw_new(self) -> tuple[list[Task], list[Task]]:
        """Remove all new tasks from stale members; return the active ones and the standbys among them."""
        actives: list[Task] = []
        standbys: list[Task] = []
        for name in sorted(self.stale):
            for unit in sorted(self.assigned[name] - _units(self.spec.members[name].assigned)):
                self._remove(name, unit)
                if unit[0] is not Role.WARMUP:
                    (actives if unit[0] is Role.ACTIVE else standbys).append(unit[1:])
        return actives, standbys

    def assign_active(self, task: Task, *, is_stateful: bool) -> bool:
        """Assign an active task that was withdrawn from a stale member.

        It stays with an owner if it is stateful or all members are stale, and else goes to an up-to-date
        member. Return whether the process of that member had a standby of the task, which becomes the active
        task.
        """
        owners = self.owners.get((Role.ACTIVE, *task), []) if is_stateful or not self.current else []
        name = min(owners, default=None) or self._next_active(task)
        if name is None:
            return False
        present = self.on_process.get((self._process(name), task))
        if present is not None:  # Its own copy, or that of another member of its process.
            self._remove(*present)
        self._add(name, (Role.ACTIVE, *task))
        return present is not None and present[1][0] is Role.STANDBY

    def _next_active(self, task: Task) -> str | None:
        """Return the best up-to-date member for an active task; None if no member is up to date."""
        for role in (Role.STANDBY, Role.WARMUP):
            if copies := self.copies.get((role, *task)):
                return min(copies, key=self._load)
        return self._lightest_without(task) or min(self.current, key=self._load, default=None)

    def assign_standby(self, task: Task) -> None:
        """Assign a standby to an owner, else to a process that has no copy of the task, if there is one."""
        standby: Unit = (Role.STANDBY, *task)
        owners = [name for name in self.owners.get(standby, ()) if not self._is_on_process(name, task)]
        name = min(owners, key=self._load) if owners else self._lightest_without(task)
        if name is not None:
            self._add(name, standby)

    def _lightest_without(self, task: Task) -> str | None:
        """Return the least loaded up-to-date member whose process does not have the task in any role."""
        popped, found = [], None
        while self.lightest and found is None:
            load = heappop(self.lightest)
            name = load[-1]
            if load == self._load(name):
                popped.append(load)
                found = None if self._is_on_process(name, task) else name
        for load in popped:
            heappush(self.lightest, load)
        return found

    def _is_on_process(self, name: str, task: Task) -> bool:
        return (self._process(name), task) in self.on_process

    def _load(self, name: str) -> tuple[int, int, str]:
        return self.actives[name], len(self.assigned[name]), name

    def assignment(self) -> GroupAssignment:
        return {
            name: _assignment(assigned) if name in self.changed else self.given.get(name, NOTHING)
            for name, assigned in self.assigned.items()
        }


def _units(tasks: MemberAssignment) -> set[Unit]:
    return units(tasks.active, tasks.standby, tasks.warmup)


def _assignment(assigned: Iterable[Unit]) -> MemberAssignment:
    roles: dict[Role, dict[str, list[int]]] = {role: {} for role in Role}
    for role, subtopology, partition in sorted(assigned):
        roles[role].setdefault(subtopology, []).append(partition)
    return MemberAssignment(*(_tasks(roles[role]) for role in Role))


def _tasks(by_subtopology: dict[str, list[int]]) -> Tasks:
    return {name: tuple(partitions) for name, partitions in by_subtopology.items()} or NO_TASKS
