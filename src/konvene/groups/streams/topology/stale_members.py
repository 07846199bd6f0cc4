"""Members whose topology is not the group's get nothing new (KIP-1071).

While an application is given another topology, instance by instance, some members still run the one before.
They keep what they have, as far as the assignor leaves it to them, but a task that they do not have, or have
in another role, may be one that they cannot run. So of what an assignor gives them

    what they have, in the role in which they have it     stays
    another active task                                   stays with who runs it, if it has state or if all
                                                          members are behind; else goes to one that is not
    another standby                                       to a process that has none of the task: stays with a
                                                          member that is behind and has it, else goes to one
                                                          that is up to date
    another warm-up                                       to nobody: it was to be active there

and of those who are up to date, who has a standby of the task comes first, then who warms it up, then who has
fewest active tasks. The standby that became active is made up for elsewhere. A task without state that is to
move goes on at once, for an assignor that moves it wants it to; one with state would begin anew with nothing.
Where nobody is up to date, a task that nobody runs waits for somebody who is; where no process is left, there
are fewer standbys.

Assignors know nothing of this, whoever wrote them. So one that has a task warm up on a member that is behind
has it for nothing: once its copy has caught up, the task stays where it is, and the copy goes or becomes a
standby. Apache Kafka 4.4 has no other topology to change to, and so nothing like it: this holds with
`konvene.streams.mode` = `kip` alone.
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

__all__ = ["nothing_new_for"]

Task = tuple[str, int]


def nothing_new_for(
    stale: Collection[str], spec: GroupSpec, given: GroupAssignment, is_stateful: Callable[[str], bool]
) -> GroupAssignment:
    """The same assignment, but that these members get nothing that they do not have."""
    work = _Work(spec, given, stale)
    orphans, short = work.take_away()
    for task in sorted(orphans):
        if work.make_active(task, is_stateful=is_stateful(task[0])):
            short.append(task)
    for task in sorted(short):
        work.add_standby(task)
    return work.answer()


class _Work:
    """An assignment that is being changed, member by member and process by process."""

    def __init__(self, spec: GroupSpec, given: GroupAssignment, stale: Collection[str]) -> None:
        self.spec = spec
        self.given = given
        self.stale = frozenset(stale)
        self.current = sorted(spec.members.keys() - set(stale))
        self.has = {name: _units(given.get(name, NOTHING)) for name in spec.members}
        self.changed: set[str] = set()
        self.on_process: dict[tuple[str, Task], tuple[str, Unit]] = {}
        """What a process has of a task, and which of its members."""
        self.actives = {name: sum(unit[0] is Role.ACTIVE for unit in has) for name, has in self.has.items()}
        self.had: dict[Unit, list[str]] = {}
        """Who has what now: in each role, of each task."""
        self.copies: dict[Unit, set[str]] = {}
        """Who of those who are up to date is to have a copy of a task."""
        for name in sorted(spec.members):
            for unit in sorted(_units(spec.members[name].assigned)):
                self.had.setdefault(unit, []).append(name)
            for unit in self.has[name]:
                self.on_process[self._process(name), unit[1:]] = name, unit
        for name in self.current:
            for unit in self.has[name]:
                if unit[0] is not Role.ACTIVE:
                    self.copies.setdefault(unit, set()).add(name)
        self.lightest = [self._load(name) for name in self.current]
        """A heap of those who are up to date. An entry that is no member's load any more is passed over."""
        heapify(self.lightest)

    def _process(self, name: str) -> str:
        return self.spec.members[name].process_id

    def _take(self, name: str, unit: Unit) -> None:
        self.has[name].remove(unit)
        self.on_process.pop((self._process(name), unit[1:]), None)
        self.actives[name] -= unit[0] is Role.ACTIVE
        self.copies.get(unit, set()).discard(name)
        self._changed(name)

    def _give(self, name: str, unit: Unit) -> None:
        self.has[name].add(unit)
        self.on_process[self._process(name), unit[1:]] = name, unit
        self.actives[name] += unit[0] is Role.ACTIVE
        self._changed(name)

    def _changed(self, name: str) -> None:
        self.changed.add(name)
        if name not in self.stale:
            heappush(self.lightest, self._load(name))

    def take_away(self) -> tuple[list[Task], list[Task]]:
        """What is new to members that are behind is nobody's: active tasks, and standbys."""
        orphans: list[Task] = []
        short: list[Task] = []
        for name in sorted(self.stale):
            for unit in sorted(self.has[name] - _units(self.spec.members[name].assigned)):
                self._take(name, unit)
                if unit[0] is not Role.WARMUP:
                    (orphans if unit[0] is Role.ACTIVE else short).append(unit[1:])
        return orphans, short

    def make_active(self, task: Task, *, is_stateful: bool) -> bool:
        """Give a task to who runs it, or to a member that is up to date; whether a standby went for it."""
        stays = self.had.get((Role.ACTIVE, *task), []) if is_stateful or not self.current else []
        name = min(stays, default=None) or self._next_active(task)
        if name is None:
            return False
        there = self.on_process.get((self._process(name), task))
        if there is not None:  # Its own, or that of another member of its process.
            self._take(*there)
        self._give(name, (Role.ACTIVE, *task))
        return there is not None and there[1][0] is Role.STANDBY

    def _next_active(self, task: Task) -> str | None:
        """Who is up to date and nearest to it; None where nobody is up to date."""
        for role in (Role.STANDBY, Role.WARMUP):
            if copies := self.copies.get((role, *task)):
                return min(copies, key=self._load)
        return self._free(task) or min(self.current, key=self._load, default=None)

    def add_standby(self, task: Task) -> None:
        """Where it is already, else where there is nothing of the task; nowhere where there is no such."""
        standby: Unit = (Role.STANDBY, *task)
        stays = [name for name in self.had.get(standby, ()) if not self._is_there(name, task)]
        name = min(stays, key=self._load) if stays else self._free(task)
        if name is not None:
            self._give(name, standby)

    def _free(self, task: Task) -> str | None:
        """Who has least of those who are up to date, on a process that has nothing of the task."""
        busy, found = [], None
        while self.lightest and found is None:
            load = heappop(self.lightest)
            name = load[-1]
            if load == self._load(name):
                busy.append(load)
                found = None if self._is_there(name, task) else name
        for load in busy:
            heappush(self.lightest, load)
        return found

    def _is_there(self, name: str, task: Task) -> bool:
        return (self._process(name), task) in self.on_process

    def _load(self, name: str) -> tuple[int, int, str]:
        return self.actives[name], len(self.has[name]), name

    def answer(self) -> GroupAssignment:
        return {
            name: _assignment(has) if name in self.changed else self.given.get(name, NOTHING)
            for name, has in self.has.items()
        }


def _units(tasks: MemberAssignment) -> set[Unit]:
    return units(tasks.active, tasks.standby, tasks.warmup)


def _assignment(has: Iterable[Unit]) -> MemberAssignment:
    roles: dict[Role, dict[str, list[int]]] = {role: {} for role in Role}
    for role, subtopology, partition in sorted(has):
        roles[role].setdefault(subtopology, []).append(partition)
    return MemberAssignment(*(_tasks(roles[role]) for role in Role))


def _tasks(found: dict[str, list[int]]) -> Tasks:
    return {name: tuple(partitions) for name, partitions in found.items()} or NO_TASKS
