"""Warm-up tasks of streams groups, their lag, and members with an older topology.

The lags are computed only for groups with warm-up tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from konvene.groups.assignors.tasks.contract import AssignmentMemberSpec
from konvene.groups.assignors.tasks.lags import Progress, Task
from konvene.groups.streams.group import Member, StreamsGroup

__all__ = ["Warming", "stale_members", "warming"]


class Warming(NamedTuple):
    """The number of a group's warm-up tasks, and their largest lag."""

    tasks: int = 0
    largest_lag: int | None = None
    """Largest known lag; None if none is known."""


def warming(group: StreamsGroup) -> Warming:
    """Count the warm-up tasks in a group's target assignment; compute their largest lag."""
    warmups = list(_warm_ups(group))
    if not warmups:
        return Warming()
    progress = Progress.of(
        AssignmentMemberSpec(
            group.members[name].process_id, task_offsets=report.offsets, task_end_offsets=report.end_offsets,
            reported_ms=report.reported_ms,
        )
        for name, report in group.reported.items()
        if name in group.members
    )  # fmt: skip
    lags = [progress.lag(member.process_id, task) for member, task in warmups]
    return Warming(len(warmups), max((lag for lag in lags if lag is not None), default=None))


def _warm_ups(group: StreamsGroup) -> Iterator[tuple[Member, Task]]:
    for name, holders_by_partition in group.warmup.items():
        for partition, holders in holders_by_partition.items():
            for holder in sorted(holders):
                if partition in group.target_of(holder).warmup.get(name, ()):
                    yield group.members[holder], (name, partition)


def stale_members(group: StreamsGroup) -> int:
    """Return the number of members with an older topology epoch than the group's."""
    return sum(member.topology_epoch < group.topology_epoch for member in group.members.values())
