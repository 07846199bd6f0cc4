"""A streams group as arrays: tasks, members and processes by number, current owners, and progress of copies.

Tasks are numbered in the order of subtopology and partition, members and processes in the order of their ids,
so numbers do not depend on the order of the input mappings. Assigned tasks that do not exist are left out. If
two members have the same active task, or a copy of it in one process, the first one counts.

Whether the owner of a task lags is measured by the offset and the end offset of its own report, which were
taken at the same time. End offsets that others reported later would make any busy owner appear to lag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, NamedTuple

from konvene.groups.assignors.tasks.contract import GroupAssignment, GroupSpec, Tasks, TopologyDescriber
from konvene.groups.assignors.tasks.lags import UNKNOWN, Progress, Task
from konvene.groups.assignors.tasks.racks import Racks

__all__ = ["ABSENT", "Copy", "IndexedGroup"]

ABSENT: Final = -1


class Copy(NamedTuple):
    """A current standby or warm-up of a task: its member, its process, and which of the two it is."""

    process: int
    member: int
    warms_up: bool


class IndexedGroup:
    """The input of the assignor as arrays, indexed by the numbers of tasks, members and processes."""

    __slots__ = (
        "acceptable", "can_wait", "copies", "count", "first_task", "member_ids", "members", "members_of",
        "owner", "process_ids", "process_of", "progress", "racks", "reports", "standbys", "state_processes",
        "stateful", "task_counts", "task_ids", "warmups", "weights",
    )  # fmt: skip

    def __init__(self, spec: GroupSpec, topology: TopologyDescriber) -> None:
        self.member_ids = sorted(spec.members)
        self.members = [spec.members[name] for name in self.member_ids]
        self.process_ids = sorted({of.process_id for of in self.members})
        number = {name: at for at, name in enumerate(self.process_ids)}
        self.process_of = [number[of.process_id] for of in self.members]
        self.members_of: list[list[int]] = [[] for _ in self.process_ids]
        for member, process in enumerate(self.process_of):
            self.members_of[process].append(member)
        self.weights = [len(some) for some in self.members_of]
        self.standbys = min(spec.configs.num_standby_replicas, max(0, len(self.process_ids) - 1))
        self.warmups = spec.configs.num_warmup_replicas
        self.acceptable = spec.configs.acceptable_recovery_lag
        self.reports = [of.reports_offsets for of in self.members]
        self.can_wait = [self.warmups > 0 and any(self.reports[m] for m in some) for some in self.members_of]
        """By process: whether a task can wait for its copy to catch up, because a member reports offsets."""
        self.task_counts: dict[str, int] = {}
        """Number of tasks by subtopology, in the order of ids."""
        self.first_task: dict[str, int] = {}
        """Number of a subtopology's first task."""
        self.stateful: list[bool] = []
        self.task_ids: list[Task] = []
        for name in sorted(topology.subtopologies):
            size = topology.max_num_input_partitions(name)
            self.task_counts[name], self.first_task[name] = size, len(self.task_ids)
            self.stateful += [topology.is_stateful(name)] * size
            self.task_ids += [(name, partition) for partition in range(size)]
        self.count = len(self.task_ids)
        self.racks = Racks.of(spec, topology)
        self.progress = Progress.of(self.members)
        self.state_processes: list[list[int]] = [[] for _ in range(self.count)]
        """By task: processes that reported an offset of it, so they have state on disk."""
        self._index_states(number)
        self._index_assigned()

    def with_assignment(self, assignment: GroupAssignment) -> IndexedGroup:
        """Return the group as if its members had this assignment already; their reported offsets stay."""
        later = copy(self)
        later.members = [
            replace(member, assigned=assignment[name])
            for name, member in zip(self.member_ids, self.members, strict=True)
        ]
        later._index_assigned()
        return later

    def __repr__(self) -> str:
        sizes = f"{len(self.member_ids)} members of {len(self.process_ids)} processes, {self.count} tasks"
        return f"<IndexedGroup {sizes}>"

    def _index_assigned(self) -> None:
        self.owner = [ABSENT] * self.count
        """By task: member that has the active task now, or `ABSENT`."""
        self.copies: list[Sequence[Copy]] = [()] * self.count
        """By task: its current standbys and warm-ups on other processes than that of the owner."""
        for member, of in enumerate(self.members):
            for task in self.task_numbers(of.assigned.active):
                if self.owner[task] == ABSENT:
                    self.owner[task] = member
        for member, of in enumerate(self.members):
            if of.assigned.standby:
                self._index_copies(member, of.assigned.standby, warms_up=False)
            if of.assigned.warmup:
                self._index_copies(member, of.assigned.warmup, warms_up=True)

    def _index_copies(self, member: int, tasks: Tasks, *, warms_up: bool) -> None:
        owner, copies, process_of = self.owner, self.copies, self.process_of
        process = process_of[member]
        mine = (Copy(process, member, warms_up),)
        for task in self.task_numbers(tasks):
            active, row = owner[task], copies[task]
            if self.stateful[task] and (active == ABSENT or process_of[active] != process):
                if not row:
                    copies[task] = mine
                elif all(other.process != process for other in row):
                    copies[task] = (*row, *mine)

    def _index_states(self, number: Mapping[str, int]) -> None:
        for name in self.process_ids:
            process = number[name]
            for subtopology, partition in self.progress.offsets.get(name, ()):
                if 0 <= partition < self.task_counts.get(subtopology, 0):
                    task = self.first_task[subtopology] + partition
                    if self.stateful[task]:
                        self.state_processes[task].append(process)

    def task_numbers(self, tasks: Tasks) -> Iterator[int]:
        """Yield the numbers of these tasks, without those that do not exist."""
        for name, partitions in tasks.items():
            size, first = self.task_counts.get(name, 0), self.first_task.get(name, 0)
            for partition in partitions:
                if 0 <= partition < size:
                    yield first + partition

    def has_caught_up(self, process: int, task: int) -> bool:
        """Return whether a process's copy of a task is known to have at most the acceptable lag."""
        return self.progress.has_caught_up(self.process_ids[process], self.task_ids[task], self.acceptable)

    def progress_rank(self, process: int, task: int) -> tuple[int, int]:
        """Return a sort key for the progress of a process's copy, the most advanced first.

        Known lags come before copies of which only the offset is known, and these before unreported ones."""
        name, key = self.process_ids[process], self.task_ids[task]
        lag = self.progress.lag(name, key)
        if lag is not None:
            return (0, lag)
        offset = self.progress.offset(name, key)
        return (1, -offset) if offset is not None else (2, 0)

    def restore_cost(self, task: int) -> int:
        """Return the number of records to restore for a task, in units of the acceptable lag.

        An unknown number counts as the largest. The coarse unit hides that end offsets were reported at
        different times.
        """
        return self.progress.ends.get(self.task_ids[task], UNKNOWN) // (self.acceptable + 1)

    def is_behind(self, member: int, task: int) -> bool:
        """Return whether a member's own report shows more than the acceptable lag for its task."""
        of, (name, partition) = self.members[member], self.task_ids[task]
        end = of.task_end_offsets.get(name, {}).get(partition)
        if end is None:
            return False
        offset = of.task_offsets.get(name, {}).get(partition)
        return offset is not None and 0 <= offset < end - self.acceptable

    def is_local(self, process: int, task: int) -> bool:
        """Return whether a member of the process is in a rack that has all partitions that the task reads."""
        if self.racks.is_trivial:
            return True
        key = self.task_ids[task]
        return any(self.racks.is_local(self.member_ids[member], key) for member in self.members_of[process])

    def to_tasks(self, numbers: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the tasks with these ascending numbers, by subtopology."""
        found: dict[str, list[int]] = {}
        for task in numbers:
            name, partition = self.task_ids[task]
            if name in found:
                found[name].append(partition)
            else:
                found[name] = [partition]
        return {name: tuple(some) for name, some in found.items()}
