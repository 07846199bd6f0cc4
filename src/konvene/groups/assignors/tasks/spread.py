"""Standbys change places, so that the copies of a task share less tags: a pass after an assignor (KIP-708).

For an assignor that does not look at tags, and is to stay as it is: Kafka's `sticky`. Two members of two
processes exchange a standby each, so everybody has as many tasks as before, and nobody's active task moves.

    shared      of a task, for each copy, tags whose value a copy counted before it has: the order does not
                matter. An exchange is made only if the two tasks share less after it than before
    stays       a copy whose process has the state of the task, if there is any exchange of others that helps
    ends        when no exchange helps any more. So whoever gets the answer again gives it back as it is (but
                see `MOST_LOOKED_AT`)

Exchanges go on until none helps; rows of three or more members are not looked for, nor are moves that would
change how much somebody has, so the answer need not be the best there is.

A copy at a member of class A, where the others of the task are at classes X, is of the kind (A, X): what an
exchange changes depends on the two kinds alone. Tags that no two processes share are left out, so that a
name of a host makes no class of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    GroupAssignment,
    GroupSpec,
    Tasks,
    TopologyDescriber,
)
from konvene.groups.assignors.tasks.lags import Task
from konvene.groups.assignors.tasks.racks import Racks, each_copy, each_task

__all__ = ["spread"]

Kind = tuple[int, tuple[int, ...]]
"""The class of who has a copy, and those of who has the others, rising."""
Unit = tuple[Task, str]
"""A standby: the task, and the member that has it."""

MOST_LOOKED_AT = 1_000_000
"""After so many looks at a kind it ends, whether an exchange would help or not: some two seconds. A thousand
members with hundreds of places that few share need more, with ten thousand tasks; few places never do."""

MOST_TAGS = 255
"""No more are looked at. Kafka's clients have five at most."""


def spread(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> GroupAssignment:
    """The same assignment with standbys exchanged; the very same where nothing can be gained."""
    tags = _shared_tags(spec)
    if not tags or not any(mine.standby for mine in given.values()):
        return given
    places = _Places(spec, Racks(spec, topology, tags[:MOST_TAGS]), given)
    places.settle(also_state=False)
    places.settle(also_state=True)
    return places.answer(given)


def _shared_tags(spec: GroupSpec) -> tuple[str, ...]:
    """The tags that can clash: two processes at least say the same."""
    found = []
    for tag in spec.configs.rack_aware_assignment_tags:
        said: dict[str, str] = {}
        for member in spec.members.values():
            value = member.client_tags.get(tag)
            if value is not None and said.setdefault(value, member.process_id) != member.process_id:
                found.append(tag)
                break
    return tuple(found)


class _Losses:
    """Kinds by how much more they share at another class; those of which there are none left are dropped
    when somebody comes by."""

    __slots__ = ("kinds", "seen")

    def __init__(self) -> None:
        self.kinds: dict[int, dict[Kind, None]] = {}
        self.seen = 0
        """How many kinds of the class were looked at."""


class _Places:
    """Who has which standby, while they change places."""

    def __init__(self, spec: GroupSpec, racks: Racks, given: GroupAssignment) -> None:
        self.racks = racks
        self.process_of = {name: member.process_id for name, member in spec.members.items()}
        self.holders: dict[Task, dict[str, int]] = {}
        """By task: the processes that have a copy, and the classes of their members."""
        self.standbys: dict[Task, list[str]] = {}
        """By task: the members that have a standby, by name."""
        self.states: set[tuple[str, Task]] = set()
        """Processes and the tasks whose state they have."""
        for name in sorted(given.keys() & spec.members.keys()):
            process = self.process_of[name]
            for task in each_copy(given[name]):
                self.holders.setdefault(task, {})[process] = racks.class_of(name)
            for task in each_task(given[name].standby):
                self.standbys.setdefault(task, []).append(name)
            had = spec.members[name]
            self.states.update((process, task) for task in each_copy(had.assigned))
            self.states.update((process, (of, p)) for of, some in had.task_offsets.items() for p in some)
        self.changed: set[str] = set()
        self.looked_at = 0
        self.also_state = False
        self.has: dict[Kind, dict[str, dict[Unit, None]]] = {}
        """Standbys that may be exchanged, by kind and process."""
        self.kinds: dict[int, list[Kind]] = {}
        """By the class of who has the copy: kinds in the order in which there came to be some of them."""
        self.ways: dict[Kind, list[tuple[int, int]]] = {}
        """For kinds that share something: at which classes they would share less by how much, most first."""
        self.shared: dict[tuple[int, ...], bytes] = {}
        self.losses: dict[tuple[int, int], _Losses] = {}
        """Of the kinds of a class: how much more they share at another class."""

    # --- kinds ---

    def settle(self, *, also_state: bool) -> None:
        """Exchange until nothing is gained; only copies whose state is not there yet, or all."""
        self.also_state = also_state
        self.has, self.kinds, self.losses = {}, {}, {}
        for task in sorted(self.standbys):
            self._put(task)
        helped = True
        while helped:
            helped = False
            for kind in list(self.has):
                while kind in self.has and self.looked_at < MOST_LOOKED_AT and self._exchange_one(kind):
                    helped = True

    def _put(self, task: Task) -> None:
        """Note the standbys of a task by their kinds."""
        for unit, process, kind in self._kinds_of(task):
            if self.also_state or (process, task) not in self.states:
                if kind not in self.has:
                    self.has[kind] = {}
                    self.kinds.setdefault(kind[0], []).append(kind)
                self.has[kind].setdefault(process, {})[unit] = None

    def _take(self, task: Task) -> None:
        for unit, process, kind in self._kinds_of(task):
            there = self.has.get(kind, {}).get(process, {})
            if unit in there:
                del there[unit]
                if not there:
                    del self.has[kind][process]
                if not self.has[kind]:
                    del self.has[kind]

    def _kinds_of(self, task: Task) -> Iterator[tuple[Unit, str, Kind]]:
        holders = self.holders[task]
        for name in self.standbys[task]:
            process = self.process_of[name]
            others = tuple(sorted(of for other, of in holders.items() if other != process))
            yield (task, name), process, (holders[process], others)

    def _loss(self, kind: Kind, other: int) -> int:
        """How many tags more a copy of a kind would share if a member of another class had it."""
        shared = self._shared_with(kind[1])
        return shared[other] - shared[kind[0]]

    def _shared_with(self, others: tuple[int, ...]) -> bytes:
        """On how many tags each class shares its value with one of these."""
        found = self.shared.get(others)
        if found is None:
            found = self.shared[others] = self.racks.shared_by_each(others)
        return found

    def _partners(self, mine: int, other: int, below: int) -> Iterator[Kind]:
        """The kinds of a class that share less than so many tags more at another one, the best first."""
        known = self.losses.setdefault((mine, other), _Losses())
        kinds = self.kinds.get(mine, [])
        for kind in kinds[known.seen :]:
            known.kinds.setdefault(self._loss(kind, other), {})[kind] = None
        self.looked_at += 1 + len(kinds) - known.seen
        known.seen = len(kinds)
        for loss in sorted(known.kinds):
            if loss >= below:
                return
            for kind in list(known.kinds[loss]):
                if kind in self.has:
                    yield kind
                else:
                    del known.kinds[loss][kind]

    # --- exchanges ---

    def _exchange_one(self, kind: Kind) -> bool:
        """Make one exchange that helps a copy of this kind, if there is any."""
        shared = self._shared_with(kind[1])
        mine = shared[kind[0]]
        if not mine:
            return False
        if kind not in self.ways:
            self.ways[kind] = sorted((mine - less, of) for of, less in enumerate(shared) if less < mine)[::-1]
        for gain, other in self.ways[kind]:
            for partner in self._partners(other, kind[0], gain):
                if (pair := self._pair(kind, partner)) is not None:
                    self._exchange(*pair)
                    return True
        return False

    def _pair(self, one: Kind, two: Kind) -> tuple[Unit, Unit] | None:
        """A copy of each kind, of two processes neither of which has a copy of the other's task."""
        for process, units in self.has[one].items():
            for other, others in self.has[two].items():
                if process != other:
                    mine = self._first_not_at(other, units)
                    theirs = self._first_not_at(process, others) if mine is not None else None
                    if mine is not None and theirs is not None:
                        return mine, theirs
        return None

    def _first_not_at(self, process: str, units: dict[Unit, None]) -> Unit | None:
        return next((unit for unit in units if process not in self.holders[unit[0]]), None)

    def _exchange(self, one: Unit, two: Unit) -> None:
        for task in (one[0], two[0]):
            self._take(task)
        for (task, name), (_, to) in ((one, two), (two, one)):
            holders, standbys = self.holders[task], self.standbys[task]
            del holders[self.process_of[name]]
            holders[self.process_of[to]] = self.racks.class_of(to)
            standbys.remove(name)
            standbys.append(to)
            standbys.sort()
        for task in (one[0], two[0]):
            self._put(task)
        self.changed.update((one[1], two[1]))

    def answer(self, given: GroupAssignment) -> GroupAssignment:
        """With what was exchanged; who has what it had keeps its value."""
        if not self.changed:
            return given
        found: dict[str, dict[str, list[int]]] = {name: {} for name in self.changed}
        for task, names in sorted(self.standbys.items()):
            for name in names:
                if name in found:
                    found[name].setdefault(task[0], []).append(task[1])
        return {
            name: replace(mine, standby=_tasks(found[name])) if name in found else mine
            for name, mine in given.items()
        }


def _tasks(found: dict[str, list[int]]) -> Tasks:
    return {name: tuple(partitions) for name, partitions in found.items()} or NO_TASKS
