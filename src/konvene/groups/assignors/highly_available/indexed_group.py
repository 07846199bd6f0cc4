"""A group in numbers: its tasks, members and processes, who has what, and how far copies are.

Tasks are numbered by subtopology and partition, members and processes by name, so that the order of numbers
is the same in whatever order maps came. What is not there is left out; of two that have the same active task,
or a copy of it in one process, the first one counts.

Nothing is decided here, but for one thing: whether the active member of a task is itself behind is measured
by its own two numbers. Its offset and its end are of one moment; others told their ends sooner or later, and
beside these whoever is busy looks as if it were behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, NamedTuple

from konvene.groups.assignors.tasks.contract import GroupAssignment, GroupSpec, Tasks, TopologyDescriber
from konvene.groups.assignors.tasks.lags import UNKNOWN, Progress, Task
from konvene.groups.assignors.tasks.racks import Racks

__all__ = ["ABSENT", "Copy", "Group"]

ABSENT: Final = -1


class Copy(NamedTuple):
    """Who has a copy of a task that is not active."""

    process: int
    member: int
    warms_up: bool


class Group:
    """What is given, in numbers."""

    __slots__ = (
        "acceptable", "copies", "count", "first", "ids", "keys", "members", "members_of", "names", "owner",
        "process_of", "progress", "racks", "reports", "sizes", "standbys", "stateful", "states", "waits",
        "warmups", "weights",
    )  # fmt: skip

    def __init__(self, spec: GroupSpec, topology: TopologyDescriber) -> None:
        self.names = sorted(spec.members)
        self.members = [spec.members[name] for name in self.names]
        self.ids = sorted({of.process_id for of in self.members})
        number = {name: at for at, name in enumerate(self.ids)}
        self.process_of = [number[of.process_id] for of in self.members]
        self.members_of: list[list[int]] = [[] for _ in self.ids]
        for member, process in enumerate(self.process_of):
            self.members_of[process].append(member)
        self.weights = [len(some) for some in self.members_of]
        self.standbys = min(spec.configs.num_standby_replicas, max(0, len(self.ids) - 1))
        self.warmups = spec.configs.num_warmup_replicas
        self.acceptable = spec.configs.acceptable_recovery_lag
        self.reports = [of.reports_offsets for of in self.members]
        self.waits = [self.warmups > 0 and any(self.reports[m] for m in some) for some in self.members_of]
        """For each process whether a task can be kept from it until its copy has caught up."""
        self.sizes: dict[str, int] = {}
        """How many tasks each subtopology has, in the order of ids."""
        self.first: dict[str, int] = {}
        """The number of its first one."""
        self.stateful: list[bool] = []
        self.keys: list[Task] = []
        for name in sorted(topology.subtopologies):
            size = topology.max_num_input_partitions(name)
            self.sizes[name], self.first[name] = size, len(self.keys)
            self.stateful += [topology.is_stateful(name)] * size
            self.keys += [(name, partition) for partition in range(size)]
        self.count = len(self.keys)
        self.racks = Racks.of(spec, topology)
        self.progress = Progress.of(self.members)
        self.states: list[list[int]] = [[] for _ in range(self.count)]
        """The processes that have reported an offset of each task."""
        self._read_states(number)
        self._read_assigned()

    def followed(self, given: GroupAssignment) -> Group:
        """The same group when everybody has what it is given here, and has told nothing since."""
        later = copy(self)
        later.members = [
            replace(of, assigned=given[name]) for name, of in zip(self.names, self.members, strict=True)
        ]
        later._read_assigned()
        return later

    def __repr__(self) -> str:
        return f"<Group {len(self.names)} members of {len(self.ids)} processes, {self.count} tasks>"

    def _read_assigned(self) -> None:
        self.owner = [ABSENT] * self.count
        """For each task the member that is active now."""
        self.copies: list[Sequence[Copy]] = [()] * self.count
        """For each task who has a standby or a warm-up of it now, of other processes than the active one."""
        for member, of in enumerate(self.members):
            for task in self.numbers(of.assigned.active):
                if self.owner[task] == ABSENT:
                    self.owner[task] = member
        for member, of in enumerate(self.members):
            if of.assigned.standby:
                self._read_copies(member, of.assigned.standby, warms_up=False)
            if of.assigned.warmup:
                self._read_copies(member, of.assigned.warmup, warms_up=True)

    def _read_copies(self, member: int, told: Tasks, *, warms_up: bool) -> None:
        owner, copies, process_of = self.owner, self.copies, self.process_of
        process = process_of[member]
        mine = (Copy(process, member, warms_up),)
        for task in self.numbers(told):
            active, row = owner[task], copies[task]
            if self.stateful[task] and (active == ABSENT or process_of[active] != process):
                if not row:
                    copies[task] = mine
                elif all(other.process != process for other in row):
                    copies[task] = (*row, *mine)

    def _read_states(self, number: Mapping[str, int]) -> None:
        for name in self.ids:
            process = number[name]
            for subtopology, partition in self.progress.offsets.get(name, ()):
                if 0 <= partition < self.sizes.get(subtopology, 0):
                    task = self.first[subtopology] + partition
                    if self.stateful[task]:
                        self.states[task].append(process)

    def numbers(self, told: Tasks) -> Iterator[int]:
        """Yield the numbers of the existing tasks in an assignment."""
        for name, partitions in told.items():
            size, first = self.sizes.get(name, 0), self.first.get(name, 0)
            for partition in partitions:
                if 0 <= partition < size:
                    yield first + partition

    def has_caught_up(self, process: int, task: int) -> bool:
        """Whether the copy of a process is known to be near enough to the end."""
        return self.progress.has_caught_up(self.ids[process], self.keys[task], self.acceptable)

    def far(self, process: int, task: int) -> tuple[int, int]:
        """How far the copy of a process is; less is further. Known lags come first, then offsets, then
        nothing."""
        name, key = self.ids[process], self.keys[task]
        lag = self.progress.lag(name, key)
        if lag is not None:
            return (0, lag)
        offset = self.progress.offset(name, key)
        return (1, -offset) if offset is not None else (2, 0)

    def length(self, task: int) -> int:
        """How much there is to restore of a task, in steps that count; where nobody knows, more than of any
        other. Who told an end sooner or later than others makes no difference."""
        return self.progress.ends.get(self.keys[task], UNKNOWN) // (self.acceptable + 1)

    def is_behind(self, member: int, task: int) -> bool:
        """Return whether an active member reports a lag itself."""
        of, (name, partition) = self.members[member], self.keys[task]
        end = of.task_end_offsets.get(name, {}).get(partition)
        if end is None:
            return False
        offset = of.task_offsets.get(name, {}).get(partition)
        return offset is not None and 0 <= offset < end - self.acceptable

    def is_local(self, process: int, task: int) -> bool:
        """Whether some member of a process is in a rack that has all that a task reads."""
        if self.racks.is_trivial:
            return True
        key = self.keys[task]
        return any(self.racks.is_local(self.names[member], key) for member in self.members_of[process])

    def told(self, tasks: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Tasks by subtopology; they come in rising order."""
        found: dict[str, list[int]] = {}
        for task in tasks:
            name, partition = self.keys[task]
            if name in found:
                found[name].append(partition)
            else:
                found[name] = [partition]
        return {name: tuple(some) for name, some in found.items()}
