"""Kafka's sticky task assignor (KIP-1071): tasks stay with their owners, or go to members with their state.

All members have the same quota. As far as quotas permit, a task goes to the first of these:

    active      1  its current owner
                2  a member that has a standby of it, or reported an offset of it
                3  the least loaded member of the process with the lowest load per member
    standby     1  the previous owner of the active task
                2  a member that has a standby of it, or reported an offset of it
                3  as above, of the processes that do not have the task

A quota is the number of tasks divided by the members, rounded up. When a member reaches its quota, that of
the others is recomputed for the remaining tasks. Among members with state, those with a current standby come
before those that only reported an offset, and higher offsets first; a later one is preferred if it and its
process both have fewer tasks. A task gets fewer standbys if there are not enough processes.

Ties are broken as in Kafka (`java_hash_map`, `queue`), so the assignment is identical to Kafka's, task by
task. For the same reason there are no improvements: racks and client tags are ignored, and if only some
subtopologies are stateful, the members' numbers of active tasks may differ by more than one, since standbys
are balanced around them.

Tasks are numbered by subtopology id and partition, so that sequences that Kafka sorts are already sorted.
Members and processes are numbered in Kafka's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from konvene.groups.assignors.sticky.queue import Queue
from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TaskAssignorError,
    TaskOffsets,
    Tasks,
    TopologyDescriber,
)
from konvene.groups.java_hash_map import compute_if_absent_order, hash_map_order

__all__ = ["assign"]

ABSENT = -1


def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Return the assignment of active tasks and standbys.

    Raises `TaskAssignorError` if there are tasks and no members.
    """
    tasks = _Tasks(topology)
    if not tasks.count:
        return dict.fromkeys(sorted(spec.members), NOTHING)
    if not spec.members:
        raise TaskAssignorError("No process available to assign active tasks.")
    builder = _AssignmentBuilder(spec, tasks)
    builder.assign_active()
    builder.assign_standby()
    return builder.assignment()


class _Tasks:
    """The tasks of a topology, numbered by subtopology id and partition."""

    __slots__ = ("by_partition", "count", "first", "sizes", "stateful")

    def __init__(self, topology: TopologyDescriber) -> None:
        self.sizes: dict[str, int] = {}
        """Number of tasks by subtopology, in the order of ids."""
        self.first: dict[str, int] = {}
        """Number of a subtopology's first task."""
        self.stateful: list[bool] = []
        """By task: whether it has state."""
        self.count = 0
        for name in sorted(topology.subtopologies, key=_java_sort_key):
            size = topology.max_num_input_partitions(name)
            self.sizes[name], self.first[name] = size, self.count
            self.stateful += [topology.is_stateful(name)] * size
            self.count += size
        spans = list(zip(self.first.values(), self.sizes.values(), strict=True))
        self.by_partition = [
            first + partition
            for partition in range(max(self.sizes.values(), default=0))
            for first, size in spans
            if partition < size
        ]

    def ranges(self, tasks: Tasks) -> Iterable[tuple[int, Sequence[int]]]:
        """Yield for each subtopology in `tasks` the number of its partition 0, and its partitions in `tasks`.

        The number of a task is the sum of the first number and its partition.

        Subtopologies and partitions that do not exist are left out.
        """
        for name, partitions in tasks.items():
            size = self.sizes.get(name, 0)
            if size and partitions:
                if partitions[0] < 0 or partitions[-1] >= size:
                    partitions = tuple(p for p in partitions if 0 <= p < size)
                yield self.first[name], partitions

    def with_offsets(self, offsets_by_subtopology: TaskOffsets) -> dict[int, int]:
        """Return reported offsets by task number, without tasks that do not exist."""
        return {
            self.first[name] + partition: offset
            for name, offsets in offsets_by_subtopology.items()
            if name in self.first
            for partition, offset in offsets.items()
            if 0 <= partition < self.sizes[name]
        }

    def by_member(self, owners: Sequence[Sequence[int]], members: int) -> list[dict[str, tuple[int, ...]]]:
        """Return the tasks of each member by subtopology.

        `owners`: one or several lists, each with an owner (or `ABSENT`) of every task.
        """
        found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(members)]
        singletons = [(partition,) for partition in range(max(self.sizes.values()))]
        for name, first in self.first.items():
            rows = [owners_of_copy[first : first + self.sizes[name]] for owners_of_copy in owners]
            if len(rows) == 1 and len(set(rows[0])) == len(rows[0]) and ABSENT not in rows[0]:
                for member, partition in zip(rows[0], singletons, strict=False):
                    found[member][name] = partition
            else:
                for member, partitions in _by_owner(rows).items():
                    found[member][name] = tuple(partitions)
        return found


def _java_sort_key(text: str) -> bytes:
    """Return the sort key that orders strings as Java does, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _by_owner(rows: list[Sequence[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, owners in enumerate(zip(*rows, strict=True)):
        for owner in owners:
            if owner in found:
                found[owner].append(partition)
            elif owner != ABSENT:
                found[owner] = [partition]
    return found


class _MemberQuota:
    """The quota: how many tasks a member may get, `size`; recomputed whenever a member has reached it.

    It is the number of tasks that are left, divided by the members below the quota, rounded up.
    """

    __slots__ = ("members", "size", "tasks")

    def __init__(self, tasks: int, members: int) -> None:
        self.tasks, self.members = tasks, members
        self.size = -(-tasks // members)

    def on_reached(self) -> None:
        """Recompute the quota for the other members, when a member has reached it."""
        self.members -= 1
        self.tasks -= self.size
        self.size = -(-self.tasks // self.members) if self.members else 0


class _AssignmentBuilder:
    """A builder of the assignment, with members, processes and tasks as numbers."""

    def __init__(self, spec: GroupSpec, tasks: _Tasks) -> None:
        self.tasks = tasks
        self.order = sorted(spec.members)
        self.member_ids = hash_map_order(self.order)
        self.members = [spec.members[name] for name in self.member_ids]
        process_ids = [member.process_id for member in self.members]
        process_numbers = {
            process_id: number for number, process_id in enumerate(compute_if_absent_order(process_ids))
        }
        self.process_of = [process_numbers[process_id] for process_id in process_ids]
        self.members_of: list[list[int]] = [[] for _ in process_numbers]
        for member, process in enumerate(self.process_of):
            self.members_of[process].append(member)
        sizes = [len(members) for members in self.members_of]
        self.has_equal_processes = len(set(sizes)) == 1
        self.capacity = [1] * len(sizes) if self.has_equal_processes else sizes
        """Capacity of each process: its number of members, or 1 if all processes have equally many."""
        self.queues: list[Queue | None] = [None] * len(process_numbers)
        """By process with several members: queue of its members by load, created on demand."""

        self.count = [0] * len(self.member_ids)
        """By member: number of its tasks in all roles."""
        self.process_counts = [0] * len(process_numbers)
        """By process: number of its tasks in all roles."""
        self.load = [0.0] * len(process_numbers)
        """By process: its number of tasks divided by its capacity."""
        self.previous_active = [ABSENT] * tasks.count
        """By task: previous owner."""
        self.active = [ABSENT] * tasks.count
        """By task: assigned owner."""
        self.standbys = [[ABSENT] * tasks.count for _ in range(spec.configs.num_standby_replicas)]
        """By index of the standby and by task: assigned member."""
        self.state_owners: list[tuple[int, ...]] = []
        """By task: members with a standby or reported state of it, the best first."""
        self.active_quota = _MemberQuota(tasks.count, len(self.member_ids))
        self.quota = _MemberQuota(
            tasks.count + sum(tasks.stateful) * len(self.standbys), len(self.member_ids)
        )

    # Active tasks ----------------------------------------------------------------------------

    def assign_active(self) -> None:
        """Assign each active task to a member."""
        remaining = self._keep_active()
        if remaining or self.standbys:
            self.state_owners = self._find_state_owners()
        if remaining:
            remaining = self._assign_by_state(remaining)
        if remaining:
            self._assign_by_load(sorted(remaining))

    def _keep_active(self) -> list[int]:
        """Assign tasks to their current owners, as far as quotas permit; return the remaining tasks."""
        previous = self.previous_active
        for member, spec in enumerate(self.members):
            for first, partitions in self.tasks.ranges(spec.assigned.active) if spec.assigned.active else ():
                for partition in partitions:
                    previous[first + partition] = member
        remaining = []
        active, count, active_quota, quota = self.active, self.count, self.active_quota, self.quota
        for task in self.tasks.by_partition:
            member = previous[task]
            if member != ABSENT and (tasks := count[member]) < active_quota.size:
                active[task] = member
                count[member] = tasks = tasks + 1
                if tasks == active_quota.size:
                    active_quota.on_reached()
                if tasks == quota.size:
                    quota.on_reached()
            else:
                remaining.append(task)
        for process, members in enumerate(self.members_of):
            self.process_counts[process] = sum(map(count.__getitem__, members))
            self.load[process] = self.process_counts[process] / self.capacity[process]
        return remaining

    def _assign_by_state(self, tasks: list[int]) -> list[int]:
        """Assign tasks to members that have their state, as far as quotas permit; return the other tasks."""
        remaining = []
        for task in tasks:
            candidates = self.state_owners[task]
            member = self._least_loaded(candidates) if candidates else ABSENT
            if member != ABSENT and self.count[member] < self.active_quota.size:
                self.active[task] = member
                self._add_task(member)
                if self.count[member] == self.active_quota.size:
                    self.active_quota.on_reached()
            else:
                remaining.append(task)
        return remaining

    def _assign_by_load(self, tasks: list[int]) -> None:
        """Assign tasks to the least loaded members."""
        queue = Queue(range(len(self.load)), self.load, has_unit_steps=self.has_equal_processes)
        active_quota = self.active_quota
        for task in tasks:
            process = queue.first()
            member = self.active[task] = self._add_to_least_loaded_member(process)
            if self.count[member] == active_quota.size:
                active_quota.on_reached()
            queue.on_served()

    # Standbys --------------------------------------------------------------------------------

    def assign_standby(self) -> None:
        """Assign the standbys of each stateful task, as far as there are processes."""
        if not self.standbys:
            return
        missing = self._keep_standbys()
        missing.sort(reverse=True)
        queue = Queue(range(len(self.load)), self.load, has_unit_steps=self.has_equal_processes)
        process_of, rows = self.process_of, [self.active, *self.standbys]
        for task, index in missing:
            processes = [process_of[row[task]] for row in rows[: index + 1]]
            for standby in self.standbys[index:]:
                member = self._next_standby_member(processes, queue)
                if member == ABSENT:
                    break
                standby[task] = member
                processes.append(process_of[member])

    def _keep_standbys(self) -> list[tuple[int, int]]:
        """Assign standbys to members that have the task's state and are below their quota.

        Return the tasks that still lack standbys, each with the index of the first one that it lacks.
        """
        missing = []
        previous, state_owners, count, quota = self.previous_active, self.state_owners, self.count, self.quota
        process_of, queues, active = self.process_of, self.queues, self.active
        stateful, standbys = self.tasks.stateful, list(enumerate(self.standbys))
        for task in reversed(self.tasks.by_partition):
            if not stateful[task]:
                continue
            if previous[task] == ABSENT and not state_owners[task]:
                missing.append((task, 0))
                continue
            processes = [process_of[active[task]]]
            for index, standby in standbys:
                member = previous[task]
                if member == ABSENT or process_of[member] in processes or count[member] >= quota.size:
                    member = self._standby_member(state_owners[task], processes)
                    if member == ABSENT or count[member] >= quota.size:
                        missing.append((task, index))
                        break
                standby[task] = member
                processes.append(process := process_of[member])
                queues[process] = None
                self._add_task(member)
        return missing

    def _standby_member(self, state_owners: Sequence[int], processes: list[int]) -> int:
        """Return which of the `state_owners` gets a standby (`_least_loaded`); `ABSENT` if none can get it.

        `processes`: those that have the task already, of which no member gets it.
        """
        process_of = self.process_of
        if len(state_owners) == 1:
            return ABSENT if process_of[state_owners[0]] in processes else state_owners[0]
        others = [member for member in state_owners if process_of[member] not in processes]
        return self._least_loaded(others) if others else ABSENT

    def _next_standby_member(self, processes: list[int], queue: Queue) -> int:
        """Assign a standby to the least loaded process that lacks the task; return the member that gets it.

        `ABSENT` if all processes have the task. `processes`: those that have it; `queue`: all, by load.
        """
        process = queue.first()
        if process not in processes:
            member = self._add_to_least_loaded_member(process)
            queue.on_served()
            return member
        skipped = [queue.skip()]
        member = ABSENT
        while queue and member == ABSENT:
            skipped.append(process := queue.skip())
            if process not in processes:
                member = self._add_to_least_loaded_member(process)
        for process in reversed(skipped):
            queue.push(process)
        return member

    # Steps of both -----------------------------------------------------------------------------------

    def _find_state_owners(self) -> list[tuple[int, ...]]:
        if any(spec.task_offsets for spec in self.members):
            return self._order_state_owners_by_offset()
        state_owners: list[tuple[int, ...]] = [()] * self.tasks.count
        for member, spec in enumerate(self.members):
            if spec.assigned.standby:
                single = (member,)
                for first, partitions in self.tasks.ranges(spec.assigned.standby):
                    for partition in partitions:
                        others = state_owners[first + partition]
                        state_owners[first + partition] = others + single if others else single
        return state_owners

    def _order_state_owners_by_offset(self) -> list[tuple[int, ...]]:
        rows: list[list[tuple[int, int, int]] | None] = [None] * self.tasks.count
        """By task: entries of whether the state is only reported, the negative offset, and the member."""
        for member, spec in enumerate(self.members):
            offsets = self.tasks.with_offsets(spec.task_offsets) if spec.task_offsets else {}
            standbys = self.tasks.ranges(spec.assigned.standby)
            entries = [
                (first + p, 0, offsets.pop(first + p, 0))
                for first, partitions in standbys
                for p in partitions
            ]
            entries += [(task, 1, offset) for task, offset in offsets.items()]
            for task, reported, offset in entries:
                row = rows[task]
                if row is None:
                    rows[task] = [(reported, -offset, member)]
                else:
                    row.append((reported, -offset, member))
        state_owners: list[tuple[int, ...]] = [()] * self.tasks.count
        for task, row in enumerate(rows):
            if row is not None:
                if len(row) > 1:
                    row.sort()
                state_owners[task] = tuple([member for _, _, member in row])
        return state_owners

    def _least_loaded(self, members: Sequence[int]) -> int:
        """Return the first of these members, or a later one if it and its process both have fewer tasks."""
        best = members[0]
        for member in members[1:]:
            process, best_process = self.process_of[member], self.process_of[best]
            if self.load[process] < self.load[best_process] and self.count[member] < self.count[best]:
                best = member
        return best

    def _add_to_least_loaded_member(self, process: int) -> int:
        """Count one more task of the least loaded member of a process; return the member."""
        members = self.members_of[process]
        if len(members) == 1:
            self._add_task(members[0])
            return members[0]
        queue = self.queues[process]
        if queue is None:
            number = {self.member_ids[member]: member for member in members}
            queue = Queue([number[name] for name in hash_map_order(list(number))], self.count)
            self.queues[process] = queue
        member = queue.first()
        self._add_task(member)
        queue.on_served()
        return member

    def _add_task(self, member: int) -> None:
        """Add one to the number of tasks of a member and of its process."""
        self.count[member] = tasks = self.count[member] + 1
        if tasks == self.quota.size:
            self.quota.on_reached()
        process = self.process_of[member]
        self.process_counts[process] = process_tasks = self.process_counts[process] + 1
        self.load[process] = process_tasks / self.capacity[process]

    def assignment(self) -> GroupAssignment:
        """Return the assignment by member id, with the objects of the input for unchanged members."""
        size = len(self.member_ids)
        active = self.tasks.by_member([self.active], size)
        standby = self.tasks.by_member(self.standbys, size) if self.standbys else [NO_TASKS] * size
        found = {
            name: _reuse_unchanged(spec.assigned, active_tasks, standby_tasks)
            for name, spec, active_tasks, standby_tasks in zip(
                self.member_ids, self.members, active, standby, strict=True
            )
        }
        return {name: found[name] for name in self.order}


def _reuse_unchanged(old: MemberAssignment, active: Tasks, standby: Tasks) -> MemberAssignment:
    """Return the new assignment of a member, with the objects of the old one for unchanged roles."""
    active_unchanged, standby_unchanged = active == old.active, standby == old.standby
    if active_unchanged and standby_unchanged and not old.warmup:
        return old
    return MemberAssignment(
        old.active if active_unchanged else active or NO_TASKS,
        old.standby if standby_unchanged else standby or NO_TASKS,
    )
