"""Pending revocations and waits in a streams group, computed from StreamsGroupDescribe.

An active task waits until no other member runs it as active and no other member of its process has it in any
role. A standby or warm-up task waits for members of its process only. A rebalance that does not progress is
blocked by a member that others wait for; it is listed first.

Kafka's description does not contain the tasks whose revocation a member has not confirmed yet. A konvene
broker reports them (`messages.streams_extensions`). For other brokers the text names the members that are
behind the target assignment epoch, as these may still own the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from konvene.client.admin.reconciliation import (
    MemberProgress,
    behind_line,
    by_urgency,
    member_label,
    owned_by_others,
    pending_revocations,
    short_label,
)
from konvene.client.admin.restore_progress import is_stale
from konvene.client.streams.tasks import Assignment, Role, Task, by_subtopology

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = [
    "Progress", "Unit", "blocking_members", "describe_progress", "describe_protocol", "format_assignment",
    "format_tasks", "member_progress",
]  # fmt: skip

Unit = tuple[Role, Task]
Progress: TypeAlias = "MemberProgress[StreamsMemberDescription, Unit]"


def member_progress(group: StreamsGroupDescription) -> list[Progress]:
    """Return the progress of all members towards their targets, blocking members first."""
    owned = {
        m.member_id: frozenset((*m.assignment.units(), *_pending_revocation(m).units()))
        for m in group.members
    }
    waits = {
        m.member_id: {unit: _owners(group, m, unit, owned) for unit in (m.target - m.assignment).units()}
        for m in group.members
    }
    found = []
    for m in group.members:
        target = frozenset(m.target.units())
        revocations = {
            unit: tuple(
                other
                for other in group.members
                if any(
                    unit[1] == task and m in owners for (_, task), owners in waits[other.member_id].items()
                )
            )
            for unit in _sorted_units(owned[m.member_id] - target)
            if not _is_role_change(unit, target)
        }
        is_behind = m.epoch < group.assignment_epoch
        found.append(MemberProgress(m, revocations, waits[m.member_id], is_behind, "TASKS"))
    return by_urgency(found)


def _is_role_change(unit: Unit, target: frozenset[Unit]) -> bool:
    """Return True if `unit` (a role and a task) is a standby or warm-up task that only changes its role.

    Its member has the task in another role in its `target`, so that nothing is to be revoked.
    """
    role, task = unit
    return role is not Role.ACTIVE and any((each, task) in target for each in Role)


def _pending_revocation(member: StreamsMemberDescription) -> Assignment:
    return member.pending_revocation if member.pending_revocation is not None else Assignment()


def _owners(
    group: StreamsGroupDescription,
    member: StreamsMemberDescription,
    unit: Unit,
    owned: Mapping[str, frozenset[Unit]],
) -> tuple[StreamsMemberDescription, ...]:
    """Return the other members that must release a task before `member` can take it in the role of `unit`.

    `owned` has the tasks, with their roles, that each member owns, by member id."""
    role, task = unit
    return tuple(
        other
        for other in group.members
        if other.member_id != member.member_id
        and (
            (role is Role.ACTIVE and (Role.ACTIVE, task) in owned[other.member_id])
            or (
                other.process_id == member.process_id
                and any((each, task) in owned[other.member_id] for each in Role)
            )
        )
    )


# text -----------------------------------------------------------------------------------------


def blocking_members(group: StreamsGroupDescription) -> list[str]:
    """Return a sentence for each member that others wait for.

    If some member waits for a task that no member is known to own, and the broker does not report pending
    revocations, there is also a sentence for each member that may still own it."""
    progress = member_progress(group)
    lines = [
        f"{member_label(p.member)} {pending_revocations(p, format_tasks)}" for p in progress if p.is_blocking
    ]
    without_owner = [
        unit
        for p in progress
        if p.member.pending_revocation is None and not p.has_left_temporarily
        for unit, owners in p.waits.items()
        if not owners
    ]
    if without_owner:
        lines += [
            f"{member_label(p.member)} is at epoch {p.member.epoch} and may still own tasks that others are "
            f"waiting for: {format_tasks(without_owner)}"
            for p in progress
            if p.is_behind and not p.has_left_temporarily and not p.is_blocking
        ]
    return lines


def describe_progress(progress: Progress, group: StreamsGroupDescription) -> list[str]:
    """Return lines about a member that has not reached its target assignment, or whose protocol or topology
    is not the group's."""
    lines = []
    if progress.has_left_temporarily:
        lines.append("has left temporarily; its tasks stay assigned to it until its session expires")
    if progress.revocations:
        lines.append(pending_revocations(progress, format_tasks))
    owned = {unit: owners for unit, owners in progress.waits.items() if owners}
    free = [unit for unit, owners in progress.waits.items() if not owners]
    if owned:
        lines.append(owned_by_others(owned, format_tasks))
    if free and not progress.has_left_temporarily:
        lines.append(_without_known_owner(free, progress, group))
    if progress.is_behind and not progress.has_left_temporarily and not progress.revocations:
        lines.append(behind_line(progress, group.assignment_epoch))
    return lines + describe_protocol(progress.member, group)


def describe_protocol(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[str]:
    """Return lines about the protocol and the topology of a member, if they differ from the group's."""
    lines = ["uses the classic protocol"] if member.is_classic else []
    return lines + _describe_topology(member, group)


def _describe_topology(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[str]:
    if group.topology is None or member.topology_epoch == group.topology.epoch:
        return []
    line = f"runs topology epoch {member.topology_epoch}, the group has epoch {group.topology.epoch}"
    return [f"is stale: {line}" if is_stale(member, group) else line]


def _without_known_owner(free: list[Unit], progress: Progress, group: StreamsGroupDescription) -> str:
    tasks = format_tasks(free)
    behind = [m for m in group.members if m.epoch < group.assignment_epoch and m is not progress.member]
    if progress.member.pending_revocation is None and behind:
        names = ", ".join(map(short_label, behind))
        return f"is waiting for {tasks}; a member that is behind may still own them: {names}"
    return f"gets {tasks} with its next heartbeat: no other member owns that"


def _sorted_units(units: Iterable[Unit]) -> list[Unit]:
    role_order = {role: i for i, role in enumerate(Role)}
    return sorted(units, key=lambda unit: (role_order[unit[0]], unit[1].sort_key))


def format_tasks(units: Iterable[Unit]) -> str:
    """Format tasks by role: `active 0_0,1_0 and standby 1_1`."""
    by_role: dict[Role, list[str]] = {}
    for role, task in _sorted_units(units):
        by_role.setdefault(role, []).append(str(task))
    return " and ".join(f"{role.value} {','.join(tasks)}" for role, tasks in by_role.items())


def format_assignment(assignment: Assignment, prefix: str = "") -> str:
    """Format an assignment as Kafka's tool does: `ACTIVE: 0:[0,1]; 1:[0,1]; STANDBY: 1:[2];`. `prefix` is put
    in front of each role."""
    parts = []
    for role in Role:
        tasks = by_subtopology(assignment.of(role))
        rows = [f"{name}:[{','.join(map(str, partitions))}];" for name, partitions in tasks.items()]
        if rows:
            parts.append(f"{prefix}{role.name}: {' '.join(rows)}")
    return " ".join(parts)
