"""Tasks stay where they are, or go to where their state is: Kafka's sticky assignor of streams groups.

Members get equal shares, and thereby processes what their members get. As far as shares allow, in this order:

    active      1  who has the task keeps it
                2  else who has a standby of it, or says that its state is on its disk
                3  else the process with least for each of its members, there the member with least
    standby     1  who had the task
                2  else who has a standby of it, or its state
                3  else as above, of the processes that do not have the task

A share is the number of tasks divided by the members, rounded up; when a member has its share, that of the
others is computed again from what is left. Of those who have a task's state, who has a standby now comes
before who only reported an offset, and then who is further ahead comes first; another is taken if it and its
process both have less. Where no process is left for a standby, there are fewer of it.

Also who is chosen among equals is who Kafka chooses (see `sticky_order`, `sticky_queue`), so that the answer
is Kafka's, task by task. For the same reason nothing here is cleverer than Kafka: racks and tags are not
looked at, and of a topology in which some have state and some have not, members may have actives that differ
by more than one, for standbys are balanced around what is there.

Tasks are numbers: those of the first subtopology by id, then those of the second, and so on, so that what
Kafka sorts is in order from the beginning. So are members and processes, in Kafka's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from konvene.groups.assignors.sticky.order import computed, hashed
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

__all__ = ["assign"]

ABSENT = -1


def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
    """Every task to a member, and its standbys to others.

    Raises `TaskAssignorError` if there are tasks and no members.
    """
    tasks = _Tasks(topology)
    if not tasks.count:
        return dict.fromkeys(sorted(spec.members), NOTHING)
    if not spec.members:
        raise TaskAssignorError("No process available to assign active tasks.")
    work = _Work(spec, tasks)
    work.assign_active()
    work.assign_standby()
    return work.answer()


class _Tasks:
    """The tasks of a topology as numbers."""

    __slots__ = ("by_partition", "count", "first", "sizes", "stateful")

    def __init__(self, topology: TopologyDescriber) -> None:
        self.sizes: dict[str, int] = {}
        """How many tasks each subtopology has, in the order of ids."""
        self.first: dict[str, int] = {}
        """The number of its first one."""
        self.stateful: list[bool] = []
        """For each task."""
        self.count = 0
        for name in sorted(topology.subtopologies, key=_utf_16):
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

    def of(self, told: Tasks) -> Iterable[tuple[int, Sequence[int]]]:
        """Yield the first task number of each existing subtopology, with the partitions in `tasks`."""
        for name, partitions in told.items():
            size = self.sizes.get(name, 0)
            if size and partitions:
                if partitions[0] < 0 or partitions[-1] >= size:
                    partitions = tuple(p for p in partitions if 0 <= p < size)
                yield self.first[name], partitions

    def with_offsets(self, told: TaskOffsets) -> dict[int, int]:
        """Offsets by task, of what there is."""
        return {
            self.first[name] + partition: offset
            for name, offsets in told.items()
            if name in self.first
            for partition, offset in offsets.items()
            if 0 <= partition < self.sizes[name]
        }

    def told(self, owners: Sequence[Sequence[int]], members: int) -> list[dict[str, tuple[int, ...]]]:
        """Return the tasks of each member, from lists that have the owner of every task."""
        found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(members)]
        alone = [(partition,) for partition in range(max(self.sizes.values()))]
        for name, first in self.first.items():
            parts = [row[first : first + self.sizes[name]] for row in owners]
            if len(parts) == 1 and len(set(parts[0])) == len(parts[0]) and ABSENT not in parts[0]:
                for member, one in zip(parts[0], alone, strict=False):
                    found[member][name] = one
            else:
                for member, partitions in _by_owner(parts).items():
                    found[member][name] = tuple(partitions)
        return found


def _utf_16(text: str) -> bytes:
    """What texts are sorted by in Java."""
    return text.encode("utf-16-be", "surrogatepass")


def _by_owner(parts: list[Sequence[int]]) -> dict[int, list[int]]:
    has: dict[int, list[int]] = {}
    for partition, owners in enumerate(zip(*parts, strict=True)):
        for owner in owners:
            if owner in has:
                has[owner].append(partition)
            elif owner != ABSENT:
                has[owner] = [partition]
    return has


class _Share:
    """How many tasks a member may have, of those that members below their share have to divide."""

    __slots__ = ("each", "members", "tasks")

    def __init__(self, tasks: int, members: int) -> None:
        self.tasks, self.members = tasks, members
        self.each = -(-tasks // members)

    def reached(self) -> None:
        """Somebody has its share: it and its tasks count no more."""
        self.members -= 1
        self.tasks -= self.each
        self.each = -(-self.tasks // self.members) if self.members else 0


class _Work:
    """An assignment in the making. Members, processes and tasks are numbers."""

    def __init__(self, spec: GroupSpec, tasks: _Tasks) -> None:
        self.tasks = tasks
        self.order = sorted(spec.members)
        self.names = hashed(self.order)
        self.members = [spec.members[name] for name in self.names]
        process_ids = [of.process_id for of in self.members]
        number = {process_id: at for at, process_id in enumerate(computed(process_ids))}
        self.process_of = [number[process_id] for process_id in process_ids]
        self.members_of: list[list[int]] = [[] for _ in number]
        for member, process in enumerate(self.process_of):
            self.members_of[process].append(member)
        sizes = [len(members) for members in self.members_of]
        self.even = len(set(sizes)) == 1
        self.capacity = [1] * len(sizes) if self.even else sizes
        """How much each process can carry beside others: its members; where all have as many, 1."""
        self.queues: list[Queue | None] = [None] * len(number)
        """The members by load of each process with several members, computed on demand."""

        self.count = [0] * len(self.names)
        """Tasks of each member, in all roles."""
        self.held = [0] * len(number)
        """Tasks of each process."""
        self.load = [0.0] * len(number)
        """The same divided by its capacity."""
        self.was_active = [ABSENT] * tasks.count
        """For each task who had it."""
        self.active = [ABSENT] * tasks.count
        """For each task who has it now."""
        self.copies = [[ABSENT] * tasks.count for _ in range(spec.configs.num_standby_replicas)]
        """For each task who has its first standby, its second one, and so on."""
        self.heirs: list[tuple[int, ...]] = []
        """For each task who had a standby of it or has its state, the best first."""
        self.share_of_active = _Share(tasks.count, len(self.names))
        self.share = _Share(tasks.count + sum(tasks.stateful) * len(self.copies), len(self.names))

    # Active tasks ----------------------------------------------------------------------------

    def assign_active(self) -> None:
        """Assign each active task to a member."""
        rest = self._keep_active()
        if rest or self.copies:
            self.heirs = self._find_heirs()
        if rest:
            rest = self._inherit(rest)
        if rest:
            self._spread_active(sorted(rest))

    def _keep_active(self) -> list[int]:
        """Assign tasks to their current owners; return the remaining tasks."""
        was = self.was_active
        for member, of in enumerate(self.members):
            for first, partitions in self.tasks.of(of.assigned.active) if of.assigned.active else ():
                for partition in partitions:
                    was[first + partition] = member
        rest = []
        active, count, share_of_active, share = self.active, self.count, self.share_of_active, self.share
        for task in self.tasks.by_partition:
            member = was[task]
            if member != ABSENT and (has := count[member]) < share_of_active.each:
                active[task] = member
                count[member] = has = has + 1
                if has == share_of_active.each:
                    share_of_active.reached()
                if has == share.each:
                    share.reached()
            else:
                rest.append(task)
        for process, members in enumerate(self.members_of):
            self.held[process] = sum(map(count.__getitem__, members))
            self.load[process] = self.held[process] / self.capacity[process]
        return rest

    def _inherit(self, tasks: list[int]) -> list[int]:
        """Assign tasks to members with their state; return the remaining tasks."""
        rest = []
        for task in tasks:
            row = self.heirs[task]
            member = self._least(row) if row else ABSENT
            if member != ABSENT and self.count[member] < self.share_of_active.each:
                self.active[task] = member
                self._give(member)
                if self.count[member] == self.share_of_active.each:
                    self.share_of_active.reached()
            else:
                rest.append(task)
        return rest

    def _spread_active(self, tasks: list[int]) -> None:
        """Assign tasks to the least loaded members."""
        queue = Queue(range(len(self.load)), self.load, even=self.even)
        share_of_active = self.share_of_active
        for task in tasks:
            process = queue.first()
            member = self.active[task] = self._give_lightest(process)
            if self.count[member] == share_of_active.each:
                share_of_active.reached()
            queue.served()

    # Standbys --------------------------------------------------------------------------------

    def assign_standby(self) -> None:
        """Give copies of each task that has state to others, as far as there are processes."""
        if not self.copies:
            return
        wanted = self._keep_standbys()
        wanted.sort(reverse=True)
        queue = Queue(range(len(self.load)), self.load, even=self.even)
        process_of, rows = self.process_of, [self.active, *self.copies]
        for task, nth in wanted:
            on = [process_of[row[task]] for row in rows[: nth + 1]]
            for copy in self.copies[nth:]:
                member = self._spread_standby(on, queue)
                if member == ABSENT:
                    break
                copy[task] = member
                on.append(process_of[member])

    def _keep_standbys(self) -> list[tuple[int, int]]:
        """To those who have state and less than their share.

        Says which tasks are left, and the first copy that is.
        """
        left = []
        was, heirs, count, share = self.was_active, self.heirs, self.count, self.share
        process_of, queues, active = self.process_of, self.queues, self.active
        stateful, copies = self.tasks.stateful, list(enumerate(self.copies))
        for task in reversed(self.tasks.by_partition):
            if not stateful[task]:
                continue
            if was[task] == ABSENT and not heirs[task]:
                left.append((task, 0))
                continue
            on = [process_of[active[task]]]
            for nth, copy in copies:
                member = was[task]
                if member == ABSENT or process_of[member] in on or count[member] >= share.each:
                    member = self._heir(heirs[task], on)
                    if member == ABSENT or count[member] >= share.each:
                        left.append((task, nth))
                        break
                copy[task] = member
                on.append(process := process_of[member])
                queues[process] = None
                self._give(member)
        return left

    def _heir(self, heirs: Sequence[int], on: list[int]) -> int:
        """The best of those whose processes do not have the task."""
        process_of = self.process_of
        if len(heirs) == 1:
            return ABSENT if process_of[heirs[0]] in on else heirs[0]
        others = [member for member in heirs if process_of[member] not in on]
        return self._least(others) if others else ABSENT

    def _spread_standby(self, on: list[int], queue: Queue) -> int:
        """To the process with least of those that do not have the task."""
        process = queue.first()
        if process not in on:
            member = self._give_lightest(process)
            queue.served()
            return member
        passed = [queue.skip()]
        member = ABSENT
        while queue and member == ABSENT:
            passed.append(process := queue.skip())
            if process not in on:
                member = self._give_lightest(process)
        for process in reversed(passed):
            queue.push(process)
        return member

    # Both ------------------------------------------------------------------------------------

    def _find_heirs(self) -> list[tuple[int, ...]]:
        if any(of.task_offsets for of in self.members):
            return self._find_heirs_by_offset()
        heirs: list[tuple[int, ...]] = [()] * self.tasks.count
        for member, of in enumerate(self.members):
            if of.assigned.standby:
                alone = (member,)
                for first, partitions in self.tasks.of(of.assigned.standby):
                    for partition in partitions:
                        before = heirs[first + partition]
                        heirs[first + partition] = before + alone if before else alone
        return heirs

    def _find_heirs_by_offset(self) -> list[tuple[int, ...]]:
        rows: list[list[tuple[int, int, int]] | None] = [None] * self.tasks.count
        """For each task: whether the state is only reported, how far it is, who has it."""
        for member, of in enumerate(self.members):
            offsets = self.tasks.with_offsets(of.task_offsets) if of.task_offsets else {}
            copies = self.tasks.of(of.assigned.standby)
            ahead = [(first + p, 0, offsets.pop(first + p, 0)) for first, some in copies for p in some]
            ahead += [(task, 1, offset) for task, offset in offsets.items()]
            for task, reported, offset in ahead:
                row = rows[task]
                if row is None:
                    rows[task] = [(reported, -offset, member)]
                else:
                    row.append((reported, -offset, member))
        heirs: list[tuple[int, ...]] = [()] * self.tasks.count
        for task, row in enumerate(rows):
            if row is not None:
                if len(row) > 1:
                    row.sort()
                heirs[task] = tuple([member for _, _, member in row])
        return heirs

    def _least(self, members: Sequence[int]) -> int:
        """The first, unless another has less, and its process has less."""
        best = members[0]
        for member in members[1:]:
            of, of_best = self.process_of[member], self.process_of[best]
            if self.load[of] < self.load[of_best] and self.count[member] < self.count[best]:
                best = member
        return best

    def _give_lightest(self, process: int) -> int:
        """One more task to the member with least."""
        members = self.members_of[process]
        if len(members) == 1:
            self._give(members[0])
            return members[0]
        queue = self.queues[process]
        if queue is None:
            number = {self.names[member]: member for member in members}
            queue = Queue([number[name] for name in hashed(list(number))], self.count)
            self.queues[process] = queue
        member = queue.first()
        self._give(member)
        queue.served()
        return member

    def _give(self, member: int) -> None:
        """One more task."""
        self.count[member] = has = self.count[member] + 1
        if has == self.share.each:
            self.share.reached()
        process = self.process_of[member]
        self.held[process] = held = self.held[process] + 1
        self.load[process] = held / self.capacity[process]

    def answer(self) -> GroupAssignment:
        """The values that came in where nothing changed, new ones where something did."""
        size = len(self.names)
        active = self.tasks.told([self.active], size)
        standby = self.tasks.told(self.copies, size) if self.copies else [NO_TASKS] * size
        found = {
            name: _as_before(of.assigned, mine, copies)
            for name, of, mine, copies in zip(self.names, self.members, active, standby, strict=True)
        }
        return {name: found[name] for name in self.order}


def _as_before(was: MemberAssignment, active: Tasks, standby: Tasks) -> MemberAssignment:
    """The same value if it is the same."""
    same_active, same_standby = active == was.active, standby == was.standby
    if same_active and same_standby and not was.warmup:
        return was
    return MemberAssignment(
        was.active if same_active else active or NO_TASKS,
        was.standby if same_standby else standby or NO_TASKS,
    )
