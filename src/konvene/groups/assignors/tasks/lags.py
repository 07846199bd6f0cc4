"""The lags of task copies, from the offsets that members report (KIP-1071).

Members report for each task with state on their disk its offset, summed over its changelogs, and for their
own tasks also the end offset. Members of a process share a disk, so each report holds for the process; of two
reports of a task the later one counts.

    lag            end - offset; at least 0. The end is the one that was reported with the offset, since
                   others have grown since; if there is none, the largest that any member reported
    unknown        if no member reported an end, or this process no offset: it has not caught up
    out of range   an offset below 0, or the maximum value, which clients report if a sum is not available:
                   ignored
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from konvene.groups.assignors.tasks.contract import AssignmentMemberSpec, TaskOffsets

__all__ = ["NO_PROGRESS", "Progress", "Task"]

Task = tuple[str, int]
"""A subtopology's id and a partition."""

UNKNOWN = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets and end offsets of the copies of a group's tasks, from the members' reports."""

    offsets: Mapping[str, Mapping[Task, int]] = field(default_factory=dict)
    """The offsets of its copies, by process."""
    own_ends: Mapping[str, Mapping[Task, int]] = field(default_factory=dict)
    """The end offsets that were reported with these offsets, by process."""
    ends: Mapping[Task, int] = field(default_factory=dict)
    """The largest reported end offset of each task."""

    @classmethod
    def of(cls, members: Iterable[AssignmentMemberSpec]) -> Progress:
        """Build the progress from the reports of these members, whose order does not matter.

        Of two reports of a process at the same time the higher offset is used.
        """
        reports: dict[str, dict[Task, tuple[int, int, int]]] = {}
        ends: dict[Task, int] = {}
        for member in members:
            end_offsets = dict(_known(member.task_end_offsets))
            for task, end in end_offsets.items():
                ends[task] = max(end, ends.get(task, 0))
            if member.task_offsets:
                by_task = reports.setdefault(member.process_id, {})
                for task, offset in _known(member.task_offsets):
                    now = member.reported_ms, offset, end_offsets.get(task, -1)
                    by_task[task] = max(now, by_task.get(task, now))
        offsets = {
            name: {task: report[1] for task, report in by_task.items()} for name, by_task in reports.items()
        }
        own = {
            name: {task: report[2] for task, report in by_task.items() if report[2] >= 0}
            for name, by_task in reports.items()
        }
        return cls(offsets, own, ends)

    def offset(self, process_id: str, task: Task) -> int | None:
        """Return the offset of a process's copy; None if it reported none."""
        return self.offsets.get(process_id, {}).get(task)

    def lag(self, process_id: str, task: Task) -> int | None:
        """Return the lag of a process's copy in records; None if it is unknown."""
        offset = self.offset(process_id, task)
        end = self.own_ends.get(process_id, {}).get(task, self.ends.get(task))
        return None if offset is None or end is None else max(0, end - offset)

    def has_caught_up(self, process_id: str, task: Task, acceptable_lag: int) -> bool:
        """Return whether the lag of a process's copy is known, and at most the acceptable lag."""
        lag = self.lag(process_id, task)
        return lag is not None and lag <= acceptable_lag


NO_PROGRESS = Progress()


def _known(offsets_by_subtopology: TaskOffsets) -> Iterator[tuple[Task, int]]:
    for name, offsets in offsets_by_subtopology.items():
        for partition, offset in offsets.items():
            if 0 <= offset < UNKNOWN:
                yield (name, partition), offset
