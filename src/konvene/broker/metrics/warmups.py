"""What warms up in a streams group, how far it has to go, and who runs an older topology: for `census`.

A group in which nothing warms up costs no look at offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from konvene.groups.assignors.tasks.contract import AssignmentMemberSpec
from konvene.groups.assignors.tasks.lags import Progress, Task
from konvene.groups.streams.group import Member, StreamsGroup

__all__ = ["Warming", "stale_members", "warming"]


class Warming(NamedTuple):
    """The warm-ups of a group."""

    tasks: int = 0
    largest_lag: int | None = None
    """Of those of which it is known."""


def warming(group: StreamsGroup) -> Warming:
    """What warms up in a group, and is meant to."""
    found = list(_warm_ups(group))
    if not found:
        return Warming()
    progress = Progress.of(
        AssignmentMemberSpec(
            group.members[name].process_id, task_offsets=said.offsets, task_end_offsets=said.end_offsets,
            reported_ms=said.reported_ms,
        )
        for name, said in group.reported.items()
        if name in group.members
    )  # fmt: skip
    lags = [progress.lag(member.process_id, task) for member, task in found]
    return Warming(len(found), max((lag for lag in lags if lag is not None), default=None))


def _warm_ups(group: StreamsGroup) -> Iterator[tuple[Member, Task]]:
    for name, there in group.warmup.items():
        for partition, holders in there.items():
            for holder in sorted(holders):
                if partition in group.target_of(holder).warmup.get(name, ()):
                    yield group.members[holder], (name, partition)


def stale_members(group: StreamsGroup) -> int:
    """How many members run an older topology than the group's."""
    return sum(member.topology_epoch < group.topology_epoch for member in group.members.values())
