"""How far the copies of tasks have come, by what members report (KIP-1071).

Members say for each task with state on their disk the sum of its offsets in the changelogs, and of tasks that
they have also the sum of the ends. Members of one process share a disk, so that what any of them says holds
for the process; where two say something of the same task, the later one counts.

    lag            end - offset; not below 0. The end is the one that was told with the offset: what others
                   tell later has grown since. Where there is none, the largest that anybody told
    unknown        where nobody told the end, or this process no offset: it has not caught up
    out of range   an offset below 0, or the largest number there is, which clients tell where a sum is of
                   no use: as if it had not been told
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
    """What is known of the copies of a group's tasks."""

    offsets: Mapping[str, Mapping[Task, int]] = field(default_factory=dict)
    """By process, how far its copies are."""
    own_ends: Mapping[str, Mapping[Task, int]] = field(default_factory=dict)
    """By process, the ends that were told with these offsets."""
    ends: Mapping[Task, int] = field(default_factory=dict)
    """How long changelogs are, by the largest ends told."""

    @classmethod
    def of(cls, members: Iterable[AssignmentMemberSpec]) -> Progress:
        """By what members have reported. Their order does not matter, but of two that reported at once in one
        process the further one counts."""
        said: dict[str, dict[Task, tuple[int, int, int]]] = {}
        ends: dict[Task, int] = {}
        for member in members:
            told = dict(_known(member.task_end_offsets))
            for task, end in told.items():
                ends[task] = max(end, ends.get(task, 0))
            if member.task_offsets:
                mine = said.setdefault(member.process_id, {})
                for task, offset in _known(member.task_offsets):
                    now = member.reported_ms, offset, told.get(task, -1)
                    mine[task] = max(now, mine.get(task, now))
        offsets = {name: {task: of[1] for task, of in mine.items()} for name, mine in said.items()}
        own = {name: {task: of[2] for task, of in mine.items() if of[2] >= 0} for name, mine in said.items()}
        return cls(offsets, own, ends)

    def offset(self, process_id: str, task: Task) -> int | None:
        """How far the copy of a process is; None where it has not said."""
        return self.offsets.get(process_id, {}).get(task)

    def lag(self, process_id: str, task: Task) -> int | None:
        """How far the copy of a process is behind, in records; None where nobody knows."""
        offset = self.offset(process_id, task)
        end = self.own_ends.get(process_id, {}).get(task, self.ends.get(task))
        return None if offset is None or end is None else max(0, end - offset)

    def has_caught_up(self, process_id: str, task: Task, acceptable_lag: int) -> bool:
        """Whether the copy of a process is known to be behind by no more than this."""
        lag = self.lag(process_id, task)
        return lag is not None and lag <= acceptable_lag


NO_PROGRESS = Progress()


def _known(told: TaskOffsets) -> Iterator[tuple[Task, int]]:
    for name, offsets in told.items():
        for partition, offset in offsets.items():
            if 0 <= offset < UNKNOWN:
                yield (name, partition), offset
