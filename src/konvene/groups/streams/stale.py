"""Members whose topology is not the group's get nothing new (KIP-1071).

While an application is given another topology, instance by instance, some members still run the one before.
They keep what they have, as far as the assignor leaves it to them, but a task that they do not have, or have
in another role, may be one that they cannot run. So of what an assignor gives them

    what they have, in the role in which they have it     stays
    another active task                                   goes to a member that is up to date
    another standby                                       likewise, to a process that has none of the task

and of those who are up to date, who has a standby of the task comes first, then who has fewest active tasks.
The standby that became active is made up for elsewhere. Where nobody is up to date, nobody runs the task
until somebody is; where no process is left, there are fewer standbys.

Assignors know nothing of this, whoever wrote them. Apache Kafka 4.4 has no other topology to change to, and
so nothing like it: this holds with `konvene.streams.mode` = `kip` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from konvene.groups.assignors.tasks import (
    NO_TASKS,
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    Tasks,
)
from konvene.groups.streams.current import Role, Unit, units

__all__ = ["nothing_new_for"]

Task = tuple[str, int]


def nothing_new_for(stale: Collection[str], spec: GroupSpec, given: GroupAssignment) -> GroupAssignment:
    """The same assignment, but that these members get nothing that they do not have."""
    work = _Work(spec, given, stale)
    orphans, short = work.take_away()
    for task in sorted(orphans):
        if work.make_active(task):
            short.append(task)
    for task in sorted(short):
        work.add_standby(task)
    return work.answer()


class _Work:
    """An assignment that is being changed, member by member and process by process."""

    def __init__(self, spec: GroupSpec, given: GroupAssignment, stale: Collection[str]) -> None:
        self.spec = spec
        self.given = given
        self.stale = sorted(stale)
        self.current = sorted(spec.members.keys() - set(stale))
        self.has = {name: _units(given.get(name, NOTHING)) for name in spec.members}
        self.changed: set[str] = set()
        self.on_process: dict[tuple[str, Task], Unit] = {}
        for name, has in self.has.items():
            for unit in has:
                self.on_process[self._process(name), unit[1:]] = unit

    def _process(self, name: str) -> str:
        return self.spec.members[name].process_id

    def _take(self, name: str, unit: Unit) -> None:
        self.has[name].remove(unit)
        self.on_process.pop((self._process(name), unit[1:]), None)
        self.changed.add(name)

    def _give(self, name: str, unit: Unit) -> None:
        self.has[name].add(unit)
        self.on_process[self._process(name), unit[1:]] = unit
        self.changed.add(name)

    def take_away(self) -> tuple[list[Task], list[Task]]:
        """What is new to members that are behind is nobody's: active tasks, and standbys."""
        orphans: list[Task] = []
        short: list[Task] = []
        for name in self.stale:
            for unit in sorted(self.has[name] - _units(self.spec.members[name].assigned)):
                self._take(name, unit)
                if unit[0] is not Role.WARMUP:
                    (orphans if unit[0] is Role.ACTIVE else short).append(unit[1:])
        return orphans, short

    def make_active(self, task: Task) -> bool:
        """Give a task to a member that is up to date; whether a standby went for it."""
        if not self.current:
            return False
        standby: Unit = (Role.STANDBY, *task)
        copies = [name for name in self.current if standby in self.has[name]]
        free = [name for name in self.current if (self._process(name), task) not in self.on_process]
        name = min(copies or free or self.current, key=self._load)
        process = self._process(name)
        there = self.on_process.get((process, task))
        if there is not None:  # Its own, or that of a member of its process that is behind.
            holder = next(
                n for n in self.spec.members if self._process(n) == process and there in self.has[n]
            )
            self._take(holder, there)
        self._give(name, (Role.ACTIVE, *task))
        return there == standby

    def add_standby(self, task: Task) -> None:
        free = [name for name in self.current if (self._process(name), task) not in self.on_process]
        if free:
            self._give(min(free, key=self._load), (Role.STANDBY, *task))

    def _load(self, name: str) -> tuple[int, int, str]:
        has = self.has[name]
        return sum(unit[0] is Role.ACTIVE for unit in has), len(has), name

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
