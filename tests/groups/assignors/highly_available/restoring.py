"""A simulated streams group whose members follow their assignments, restore copies and report their progress.

A process has a disk, which keeps the state of revoked tasks. Ends do not grow, so that every copy catches up.
In each round the group gets an assignment, follows it at once, and restores.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.groups.assignors.tasks.golden import Task, on_processes, owners, tasks

from konvene.groups.assignors.highly_available.assignor import assign
from konvene.groups.assignors.tasks.contract import (
    NOTHING,
    AssignmentConfigs,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TaskOffsets,
    TopologyDescriber,
    checked,
)

END = 100_000
SLOWEST = 8
"""Number of rounds after which every copy is at the end."""
FULL = END - 10_000
"""Offset from which a copy has caught up."""


class Restoring:
    """A group, and the state on the disks of its processes."""

    def __init__(self, topology: TopologyDescriber, configs: AssignmentConfigs, seed: int = 0) -> None:
        self.topology, self.configs = topology, configs
        self.chance = random.Random(seed)
        self.process_of: dict[str, str] = {}
        self.silent: set[str] = set()
        """Processes that report no offsets."""
        self.disks: dict[str, dict[Task, int]] = {}
        self.given: dict[str, MemberAssignment] = {}

    def join(self, name: str, process: str, *, silent: bool = False) -> None:
        self.process_of[name] = process
        self.disks.setdefault(process, {})
        if silent:
            self.silent.add(process)

    def leave(self, name: str) -> None:
        """Remove a member; its process keeps its disk."""
        del self.process_of[name]
        self.given.pop(name, None)

    @property
    def spec(self) -> GroupSpec:
        """Return the current input of an assignor."""
        return GroupSpec({name: self._member(name) for name in self.process_of}, self.configs)

    def _member(self, name: str) -> AssignmentMemberSpec:
        process, mine = self.process_of[name], self.given.get(name, NOTHING)
        if process in self.silent:
            return AssignmentMemberSpec(process, mine)
        disk = self.disks[process]
        has = {task for role in (mine.active, mine.standby, mine.warmup) for task in tasks(role)}
        ends = dict.fromkeys(sorted(has & disk.keys()), END)
        return AssignmentMemberSpec(
            process, mine, task_offsets=_by_subtopology(disk), task_end_offsets=_by_subtopology(ends),
            reports_offsets=True,
        )  # fmt: skip

    def answer(self) -> GroupAssignment:
        spec = self.spec
        return checked(spec, self.topology, assign(spec, self.topology))

    def round(self) -> bool:
        """Assign once; all members follow at once, and at least one warm-up catches up. Return whether
        anything changed."""
        given = self.answer()
        changed = any(given[name] != self.given.get(name, NOTHING) for name in given)
        self.given = dict(given)
        self.restore()
        return changed

    def restore(self) -> None:
        """Advance the copies that are assigned; active tasks are at the end."""
        warming = [
            (self.process_of[n], t) for n, mine in sorted(self.given.items()) for t in tasks(mine.warmup)
        ]
        for process, task in sorted(on_processes(self.spec, self.given)):
            if self.topology.is_stateful(task[0]):
                at = self.disks[process].get(task, 0)
                self.disks[process][task] = min(END, at + self.chance.randint(END // SLOWEST, END // 2))
        behind = [(process, task) for process, task in warming if self.disks[process][task] < FULL]
        if warming and len(behind) == len(warming):
            process, task = behind[0]
            self.disks[process][task] = FULL

    def settle(self, within: int) -> int:
        """Return the number of rounds until nothing changes."""
        still = 0
        for count in range(within + SLOWEST):
            still = 0 if self.round() else still + 1
            if still == SLOWEST:
                return count
        raise AssertionError(f"not settled after {within} rounds: {self.given}")


def _by_subtopology(offsets: dict[Task, int]) -> TaskOffsets:
    found: dict[str, dict[int, int]] = {}
    for (name, partition), offset in offsets.items():
        found.setdefault(name, {})[partition] = offset
    return found


# --- measures of an assignment ----------------------------------------------------------------------


Loads = dict[str, tuple[int, int]]
"""For each process its tasks and its members."""


def loads(spec: GroupSpec, given: GroupAssignment, only: set[str] | None = None) -> Loads:
    """Return each process's active tasks and members. `only`: of these subtopologies."""
    members = Counter(of.process_id for of in spec.members.values())
    has: Counter[str] = Counter()
    for name, mine in given.items():
        some = [task for task in tasks(mine.active) if only is None or task[0] in only]
        has[spec.members[name].process_id] += len(some)
    return {process: (has[process], weight) for process, weight in members.items()}


def could_be_evener(by_process: Loads) -> bool:
    """Return whether moving a task to another process would still leave that one with a lower load per
    member."""
    return any(
        has * other_weight > (other + 1) * weight
        for has, weight in by_process.values()
        for other, other_weight in by_process.values()
    )


def spread_within(spec: GroupSpec, given: GroupAssignment) -> int:
    """Return the largest difference of task counts between two members of a process."""
    rows: dict[str, list[int]] = {}
    for name, mine in given.items():
        rows.setdefault(spec.members[name].process_id, []).append(len(tasks(mine.active)))
    return max(max(row) - min(row) for row in rows.values())


def copies(given: GroupAssignment, role: str) -> Counter[Task]:
    return Counter(task for mine in given.values() for task in tasks(getattr(mine, role)))


def process_of_owners(spec: GroupSpec, given: GroupAssignment) -> dict[Task, str]:
    return {task: spec.members[name].process_id for task, name in owners(given).items()}
