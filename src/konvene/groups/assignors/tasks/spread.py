"""Exchange of standbys after an assignor, so that the copies of a task share fewer client tags (KIP-708).

For an assignor that ignores tags and stays as it is: Kafka's `sticky`. Two members of different processes
exchange one standby each, so the members' numbers of tasks and the active tasks do not change.

    shared      number of tags of a task's copies whose value an earlier copy has, in any order. An exchange
                is made only if it lowers the sum over both tasks
    state       copies on a process with the task's state stay, as long as exchanges of others help
    end         when no exchange helps. The result is then stable: it is returned unchanged for the same input
                (except beyond `MAX_VISITS`)

Cyclic exchanges of three or more members, and moves that change the members' numbers of tasks, are not
considered, so the result need not be optimal.

A copy at a member of class A, with other copies of the task at classes X, is of the kind (A, X): the effect
of an exchange depends only on the two kinds. Tags that no two processes share are ignored, so that a host
name does not make every member a class of its own."""

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

CopyKind = tuple[int, tuple[int, ...]]
"""Class of the member with the copy, and classes of the members with the other copies, ascending."""
Unit = tuple[Task, str]
"""A standby: the task, and the member that has it."""

MAX_VISITS = 1_000_000
"""Number of visited kinds after which the search ends even if exchanges are left: about two seconds. Reached
only with thousands of tasks, and hundreds of tag values that few members share."""

MAX_TAGS = 255
"""Further tags are ignored. Kafka's clients have at most five."""


def spread(spec: GroupSpec, topology: TopologyDescriber, given: GroupAssignment) -> GroupAssignment:
    """Return the assignment with standbys exchanged; the same object if no exchange helps."""
    tags = _shared_tags(spec)
    if not tags or not any(assigned.standby for assigned in given.values()):
        return given
    exchange = _StandbyExchange(spec, Racks(spec, topology, tags[:MAX_TAGS]), given)
    exchange.exchange_all(move_state=False)
    exchange.exchange_all(move_state=True)
    return exchange.assignment(given)


def _shared_tags(spec: GroupSpec) -> tuple[str, ...]:
    """Return the configured tags of which at least two processes have the same value."""
    found = []
    for tag in spec.configs.rack_aware_assignment_tags:
        first_process: dict[str, str] = {}
        for member in spec.members.values():
            value = member.client_tags.get(tag)
            if value is not None and first_process.setdefault(value, member.process_id) != member.process_id:
                found.append(tag)
                break
    return tuple(found)


class _KindsByLoss:
    """An index of the standbys at members of one class by their loss if they move to one other class.

    It lists their kinds (class, classes of the task's other copies). The loss is the number of additional
    tags that a standby shares at the other class. Kinds without standbys are removed when they are found.
    """

    __slots__ = ("indexed", "kinds")

    def __init__(self) -> None:
        self.kinds: dict[int, dict[CopyKind, None]] = {}
        self.indexed = 0
        """Number of the class's kinds that were indexed."""


class _StandbyExchange:
    """The assignment of standbys while they are exchanged, indexed by kind.

    The kind of a standby is the class of its member, and the classes of the task's other copies.
    """

    def __init__(self, spec: GroupSpec, racks: Racks, assignment: GroupAssignment) -> None:
        self.racks = racks
        self.process_of = {name: member.process_id for name, member in spec.members.items()}
        self.holders: dict[Task, dict[str, int]] = {}
        """By task: processes with a copy, and the classes of their members."""
        self.standbys: dict[Task, list[str]] = {}
        """By task: members with a standby, by id."""
        self.states: set[tuple[str, Task]] = set()
        """Processes and the tasks of which they have state."""
        for name in sorted(assignment.keys() & spec.members.keys()):
            process = self.process_of[name]
            for task in each_copy(assignment[name]):
                self.holders.setdefault(task, {})[process] = racks.class_of(name)
            for task in each_task(assignment[name].standby):
                self.standbys.setdefault(task, []).append(name)
            spec_of_member = spec.members[name]
            self.states.update((process, task) for task in each_copy(spec_of_member.assigned))
            self.states.update(
                (process, (subtopology, partition))
                for subtopology, offsets in spec_of_member.task_offsets.items()
                for partition in offsets
            )
        self.changed: set[str] = set()
        self.visits = 0
        self.move_state = False
        self.standbys_by_kind: dict[CopyKind, dict[str, dict[Unit, None]]] = {}
        """Exchangeable standbys by kind and process."""
        self.kinds: dict[int, list[CopyKind]] = {}
        """By class of the member with the copy: kinds in the order of their creation."""
        self.gains: dict[CopyKind, list[tuple[int, int]]] = {}
        """By kind that shares tags: gain and class of all moves that would reduce them, largest gain
        first."""
        self.shared: dict[tuple[int, ...], bytes] = {}
        self.losses: dict[tuple[int, int], _KindsByLoss] = {}
        """By class of the copy and other class: kinds by the loss of a move to the latter."""

    # --- kinds ---

    def exchange_all(self, *, move_state: bool) -> None:
        """Exchange standbys until no exchange helps.

        `move_state`: also exchange standbys that would leave a process that has their state.
        """
        self.move_state = move_state
        self.standbys_by_kind, self.kinds, self.losses = {}, {}, {}
        for task in sorted(self.standbys):
            self._add_task(task)
        has_changed = True
        while has_changed:
            has_changed = False
            for kind in list(self.standbys_by_kind):
                while kind in self.standbys_by_kind and self.visits < MAX_VISITS and self._try_exchange(kind):
                    has_changed = True

    def _add_task(self, task: Task) -> None:
        """Add the standbys of a task that may move to the index by kind."""
        for unit, process, kind in self._kinds_of(task):
            if self.move_state or (process, task) not in self.states:
                if kind not in self.standbys_by_kind:
                    self.standbys_by_kind[kind] = {}
                    self.kinds.setdefault(kind[0], []).append(kind)
                self.standbys_by_kind[kind].setdefault(process, {})[unit] = None

    def _remove_task(self, task: Task) -> None:
        for unit, process, kind in self._kinds_of(task):
            units = self.standbys_by_kind.get(kind, {}).get(process, {})
            if unit in units:
                del units[unit]
                if not units:
                    del self.standbys_by_kind[kind][process]
                if not self.standbys_by_kind[kind]:
                    del self.standbys_by_kind[kind]

    def _kinds_of(self, task: Task) -> Iterator[tuple[Unit, str, CopyKind]]:
        holders = self.holders[task]
        for name in self.standbys[task]:
            process = self.process_of[name]
            others = tuple(
                sorted(holder_class for other, holder_class in holders.items() if other != process)
            )
            yield (task, name), process, (holders[process], others)

    def _loss(self, kind: CopyKind, other: int) -> int:
        """Return how many more tags a standby of this kind would share at a member of the class `other`."""
        shared = self._shared_with(kind[1])
        return shared[other] - shared[kind[0]]

    def _shared_with(self, others: tuple[int, ...]) -> bytes:
        """Return by class of how many tags it has the same value as any of the classes `others`."""
        found = self.shared.get(others)
        if found is None:
            found = self.shared[others] = self.racks.shared_by_each(others)
        return found

    def _partners(self, from_class: int, to_class: int, max_loss: int) -> Iterator[CopyKind]:
        """Yield the kinds of standbys in `from_class` that lose less than `max_loss` by a move to `to_class`.

        The loss is the number of additional tags that they share there. The smallest comes first.
        """
        index = self.losses.setdefault((from_class, to_class), _KindsByLoss())
        kinds = self.kinds.get(from_class, [])
        for kind in kinds[index.indexed :]:
            index.kinds.setdefault(self._loss(kind, to_class), {})[kind] = None
        self.visits += 1 + len(kinds) - index.indexed
        index.indexed = len(kinds)
        for loss in sorted(index.kinds):
            if loss >= max_loss:
                return
            for kind in list(index.kinds[loss]):
                if kind in self.standbys_by_kind:
                    yield kind
                else:
                    del index.kinds[loss][kind]

    # --- exchanges ---

    def _try_exchange(self, kind: CopyKind) -> bool:
        """Exchange a standby of this kind for one of another kind, if the two then share fewer tags in total.

        Return whether there was such an exchange.
        """
        shared = self._shared_with(kind[1])
        current = shared[kind[0]]
        if not current:
            return False
        if kind not in self.gains:
            self.gains[kind] = sorted(
                (current - after, target_class)
                for target_class, after in enumerate(shared)
                if after < current
            )[::-1]
        for gain, other in self.gains[kind]:
            for partner in self._partners(other, kind[0], gain):
                if (pair := self._pair(kind, partner)) is not None:
                    self._exchange(*pair)
                    return True
        return False

    def _pair(self, one: CopyKind, two: CopyKind) -> tuple[Unit, Unit] | None:
        """Return a standby of each of two kinds that can be exchanged; None if there is no such pair.

        They cannot if a process would have a task twice after the exchange."""
        for process, units in self.standbys_by_kind[one].items():
            for other, others in self.standbys_by_kind[two].items():
                if process != other:
                    first = self._first_not_at(other, units)
                    second = self._first_not_at(process, others) if first is not None else None
                    if first is not None and second is not None:
                        return first, second
        return None

    def _first_not_at(self, process: str, units: dict[Unit, None]) -> Unit | None:
        return next((unit for unit in units if process not in self.holders[unit[0]]), None)

    def _exchange(self, one: Unit, two: Unit) -> None:
        for task in (one[0], two[0]):
            self._remove_task(task)
        for (task, name), (_, target) in ((one, two), (two, one)):
            holders, standbys = self.holders[task], self.standbys[task]
            del holders[self.process_of[name]]
            holders[self.process_of[target]] = self.racks.class_of(target)
            standbys.remove(name)
            standbys.append(target)
            standbys.sort()
        for task in (one[0], two[0]):
            self._add_task(task)
        self.changed.update((one[1], two[1]))

    def assignment(self, given: GroupAssignment) -> GroupAssignment:
        """Return `given` with all standbys exchanged; unchanged members keep their object of `given`."""
        if not self.changed:
            return given
        found: dict[str, dict[str, list[int]]] = {name: {} for name in self.changed}
        for task, names in sorted(self.standbys.items()):
            for name in names:
                if name in found:
                    found[name].setdefault(task[0], []).append(task[1])
        return {
            name: replace(assigned, standby=_tasks(found[name])) if name in found else assigned
            for name, assigned in given.items()
        }


def _tasks(found: dict[str, list[int]]) -> Tasks:
    return {name: tuple(partitions) for name, partitions in found.items()} or NO_TASKS
