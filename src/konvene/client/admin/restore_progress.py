"""Restore progress of tasks in a streams group, and members with an older topology.

A warm-up restores the state of a task that another member runs, until it is close to the end; a standby keeps
a copy of the state. Members report offsets: sums over the changelogs of a task, and the sums of the end
offsets. Members of one process share their state on disk, so a report of one holds for all of them. If
reports differ, the largest offset is shown, as the description does not show which report is the newest.

An unknown value is shown as unknown: there is no bar without an end offset. Kafka's description lacks the
limits (acceptable recovery lag, number of warm-ups) and which members report no offsets. A konvene broker
reports them as well (`messages.streams_extensions`); for other brokers they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from konvene.client.admin.reconciliation import short_label
from konvene.client.streams.membership import UNKNOWN_OFFSET
from konvene.client.streams.tasks import Role, Task

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = [
    "TaskProgress", "bar", "describe_group_progress", "describe_task_progress", "is_stale", "task_progress",
    "warmup_count",
]  # fmt: skip

BAR_WIDTH = 20
"""Width of a progress bar in characters."""


class TaskProgress(NamedTuple):
    """The restore progress of one task at a member: the offset that is restored and the end offset, as sums
    over the changelogs of the task; None if unknown."""

    role: Role
    task: Task
    offset: int | None
    end: int | None
    acceptable_lag: int | None
    active_member: StreamsMemberDescription | None = None
    """The member that runs the task as active, if that is another one."""

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)

    @property
    def caught_up(self) -> bool | None:
        """Return True if the lag is small enough for the member to take the task over; None if the limit is
        unknown."""
        if self.acceptable_lag is None:
            return None
        return self.lag is not None and self.lag <= self.acceptable_lag

    @property
    def is_restoring(self) -> bool:
        return bool(self.lag)


def task_progress(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[TaskProgress]:
    """Return the restore progress of each task that a member has."""
    offsets = _offsets(group, member.process_id)
    ends = _ends(group)
    active = {task: m for m in group.members for task in m.assignment.active}
    return [
        TaskProgress(
            role, task, offsets.get(task), ends.get(task), group.acceptable_recovery_lag,
            None if role is Role.ACTIVE else active.get(task),
        )
        for role, task in member.assignment.units()
    ]  # fmt: skip


def _offsets(group: StreamsGroupDescription, process_id: str) -> dict[Task, int]:
    """Return the largest offset of each task that any member of a process reports."""
    found: dict[Task, int] = {}
    for m in group.members:
        if m.process_id == process_id:
            _keep_largest(found, m.task_offsets.items())
    return found


def _ends(group: StreamsGroupDescription) -> dict[Task, int]:
    found: dict[Task, int] = {}
    for m in group.members:
        _keep_largest(found, m.task_end_offsets.items())
    return found


def _keep_largest(found: dict[Task, int], reported: Iterable[tuple[Task, int]]) -> None:
    for task, offset in reported:
        if 0 <= offset < UNKNOWN_OFFSET:
            found[task] = max(offset, found.get(task, 0))


def warmup_count(group: StreamsGroupDescription) -> int:
    """Return the number of warm-up tasks in the group."""
    return sum(len(m.assignment.warmup) for m in group.members)


def is_stale(member: StreamsMemberDescription, group: StreamsGroupDescription) -> bool:
    """Return True if the member runs an older topology than the group."""
    return group.topology is not None and member.topology_epoch < group.topology.epoch


# text -----------------------------------------------------------------------------------------


def describe_task_progress(
    member: StreamsMemberDescription, group: StreamsGroupDescription, *, verbose: bool = False
) -> list[str]:
    """Return a line for each warm-up task of a member. `verbose` adds its other tasks that are restoring, and
    a line if it does not report task offsets."""
    lines = []
    for each in task_progress(member, group):
        if each.role is Role.WARMUP or (verbose and each.is_restoring):
            lines.append(_line(each))
    if verbose and _has_state(group) and member.member_id in (group.not_reporting or ()):
        lines.append("does not report task offsets: it gets tasks without a warm-up")
    return lines


def _has_state(group: StreamsGroupDescription) -> bool:
    return group.topology is not None and any(s.state_changelog_topics for s in group.topology.subtopologies)


def _line(progress: TaskProgress) -> str:
    parts = [f"{_ROLES[progress.role]} {progress.task}", bar(progress.offset, progress.end)]
    if progress.offset is None:
        parts.append("progress unknown")
    elif progress.end is None:
        parts.append(f"at {progress.offset}, end offset unknown")
    else:
        parts.append(f"at {progress.offset} of {progress.end}, lag {progress.lag}{_limit(progress)}")
    line = " ".join(part for part in parts if part)
    return (
        line if progress.active_member is None else f"{line}; active on {short_label(progress.active_member)}"
    )


_ROLES = {Role.ACTIVE: "restores active", Role.STANDBY: "standby", Role.WARMUP: "warm-up"}


def _limit(progress: TaskProgress) -> str:
    if progress.role is not Role.WARMUP or progress.acceptable_lag is None:
        return ""
    if progress.caught_up:
        return f" <= {progress.acceptable_lag}: caught up"
    return f" (caught up at lag <= {progress.acceptable_lag})"


def bar(offset: int | None, end: int | None) -> str:
    """Format a progress bar: `[##########----------]  50 %`; empty if a value is unknown. 100 % means that no
    record is missing."""
    if offset is None or end is None:
        return ""
    share = min(offset, end) / end if end else 1.0
    return f"[{'#' * int(share * BAR_WIDTH):-<{BAR_WIDTH}}] {int(share * 100):3} %"


def describe_group_progress(group: StreamsGroupDescription) -> list[str]:
    """Return lines about the group: its warm-ups, its members with an older topology, and its members of the
    classic protocol."""
    lines = []
    count, limit = warmup_count(group), group.num_warmup_replicas
    if count:
        lines.append(f"warm-ups in progress: {count}{'' if limit is None else f' of at most {limit}'}")
    stale = [m for m in group.members if is_stale(m, group)]
    if stale and group.topology is not None:
        lines.append(
            f"stale members: {len(stale)} of {len(group.members)} (the group has topology epoch "
            f"{group.topology.epoch}): {', '.join(map(short_label, stale))}"
        )
    classic = [m for m in group.members if m.is_classic]
    if classic:
        lines.append(
            f"members that use the classic protocol: {len(classic)} of {len(group.members)}: "
            f"{', '.join(map(short_label, classic))}"
        )
    return lines
