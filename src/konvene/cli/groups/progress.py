"""How far copies of tasks have come in a streams group, and who of it runs an older topology.

A warm-up keeps the state of a task that another member runs, until it has nearly all of it; a standby keeps
it in case. Members say how far they are: sums over the changelogs of a task, and where these end. Members of
one process share a disk, so what any of them says holds for all of them; where they say different things the
further one is shown, for a description does not tell who spoke last. Ends only grow: the largest one counts.

What is not known is said to be so: no bar is drawn without an end. Kafka's description has the figures, and
not the limits: how far behind a warm-up may be that takes over, how many there may be, and who is known to
say nothing. A broker of ours tells them beside (`messages.streams_notes`); of another they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from konvene.client.streams.membership import UNKNOWN_OFFSET
from konvene.client.streams.tasks import Role, Task

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = ["Copy", "bar", "copies_of", "is_stale", "of_group", "of_member", "warming_up"]

WIDTH = 20
"""Of a bar, in characters."""


class Copy(NamedTuple):
    """A task that a member has in a role, or is to have."""

    role: Role
    task: Task
    offset: int | None
    end: int | None
    acceptable_lag: int | None
    runs_it: StreamsMemberDescription | None = None
    """Who is active meanwhile, where this is another member."""

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)

    @property
    def caught_up(self) -> bool | None:
        """Whether it is near enough to take over; None: the limit is not known."""
        if self.acceptable_lag is None:
            return None
        return self.lag is not None and self.lag <= self.acceptable_lag

    @property
    def is_restoring(self) -> bool:
        return bool(self.lag)


def copies_of(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[Copy]:
    """Of each task that a member has, in order: how far it is."""
    offsets = _offsets(group, member.process_id)
    ends = _ends(group)
    runs = {task: m for m in group.members for task in m.assignment.active}
    return [
        Copy(
            role, task, offsets.get(task), ends.get(task), group.acceptable_recovery_lag,
            None if role is Role.ACTIVE else runs.get(task),
        )
        for role, task in member.assignment.units()
    ]  # fmt: skip


def _offsets(group: StreamsGroupDescription, process_id: str) -> dict[Task, int]:
    """How far a process says that it is."""
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


def _keep_largest(found: dict[Task, int], told: Iterable[tuple[Task, int]]) -> None:
    for task, offset in told:
        if 0 <= offset < UNKNOWN_OFFSET:
            found[task] = max(offset, found.get(task, 0))


def warming_up(group: StreamsGroupDescription) -> int:
    """How many tasks warm up."""
    return sum(len(m.assignment.warmup) for m in group.members)


def is_stale(member: StreamsMemberDescription, group: StreamsGroupDescription) -> bool:
    """Whether it runs an older topology than the group's."""
    return group.topology is not None and member.topology_epoch < group.topology.epoch


# in words -------------------------------------------------------------------------------------


def of_member(
    member: StreamsMemberDescription, group: StreamsGroupDescription, *, verbose: bool = False
) -> list[str]:
    """A line for each warm-up of a member; `verbose`: also for whatever else it restores, and whether it is
    known to say nothing of all that."""
    told = []
    for each in copies_of(member, group):
        if each.role is Role.WARMUP or (verbose and each.is_restoring):
            told.append(_line(each))
    if verbose and _has_state(group) and member.member_id in (group.silent or ()):
        told.append("does not say how far its tasks are: it is given tasks without a warm-up")
    return told


def _has_state(group: StreamsGroupDescription) -> bool:
    return group.topology is not None and any(s.state_changelog_topics for s in group.topology.subtopologies)


def _line(copy: Copy) -> str:
    words = [f"{_ROLES[copy.role]} {copy.task}", bar(copy.offset, copy.end)]
    if copy.offset is None:
        words.append("it has not said how far it is")
    elif copy.end is None:
        words.append(f"at {copy.offset}, and nobody has said where the changelog ends")
    else:
        words.append(f"at {copy.offset} of {copy.end}, lag {copy.lag}{_limit(copy)}")
    line = " ".join(word for word in words if word)
    return line if copy.runs_it is None else f"{line}; {_name(copy.runs_it)} runs it"


_ROLES = {Role.ACTIVE: "restores active", Role.STANDBY: "standby", Role.WARMUP: "warm-up"}


def _limit(copy: Copy) -> str:
    if copy.role is not Role.WARMUP or copy.acceptable_lag is None:
        return ""
    if copy.caught_up:
        return f" <= {copy.acceptable_lag}: caught up"
    return f" (caught up at lag <= {copy.acceptable_lag})"


def bar(offset: int | None, end: int | None) -> str:
    """`[##########----------]  50 %`; nothing where the end is not known. What lacks a record is not full."""
    if offset is None or end is None:
        return ""
    share = min(offset, end) / end if end else 1.0
    return f"[{'#' * int(share * WIDTH):-<{WIDTH}}] {int(share * 100):3} %"


def of_group(group: StreamsGroupDescription) -> list[str]:
    """What there is to say of the group: how many of its tasks warm up, and who of its members is stale, or
    speaks the classic protocol."""
    told = []
    count, most = warming_up(group), group.num_warmup_replicas
    if count:
        limit = "" if most is None else f" of at most {most}"
        told.append(f"warm-ups in progress: {count}{limit}")
    stale = [m for m in group.members if is_stale(m, group)]
    if stale and group.topology is not None:
        told.append(
            f"stale members: {len(stale)} of {len(group.members)}, for the group's topology is "
            f"{group.topology.epoch}: {', '.join(map(_name, stale))}"
        )
    classic = [m for m in group.members if m.is_classic]
    if classic:
        told.append(
            f"members that speak the classic protocol: {len(classic)} of {len(group.members)}: "
            f"{', '.join(map(_name, classic))}"
        )
    return told


def _name(member: StreamsMemberDescription) -> str:
    return member.instance_id or f"{member.member_id} ({member.client_id})"
