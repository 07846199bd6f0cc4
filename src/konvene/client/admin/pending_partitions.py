"""Pending revocations and waits in a consumer group, computed from ConsumerGroupDescribe.

A member has to revoke what it owns beyond its target, and waits for what its target has beyond what it owns
until the current owner has released it. A rebalance that does not progress is blocked by a member that others
wait for; it is listed first. This works with any broker. No broker reports which of the revocations were
already sent to the member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from konvene.client.admin.reconciliation import (
    MemberProgress,
    behind_line,
    by_urgency,
    member_label,
    owned_by_others,
    pending_revocations,
)
from konvene.client.net.cluster import TopicPartition

if TYPE_CHECKING:
    from konvene.client.admin.groups import GroupDescription, MemberDescription

    Progress: TypeAlias = MemberProgress[MemberDescription, TopicPartition]

__all__ = ["blocking_members", "describe_progress", "format_partitions", "member_progress"]


def member_progress(group: GroupDescription) -> list[Progress]:
    """Return the progress of all members towards their targets, blocking members first."""
    owners = {tp: (m,) for m in group.members for tp in m.assignment}
    waiting = {tp: (m,) for m in group.members for tp in m.target or () if tp not in m.assignment}
    found = []
    for m in group.members:
        target = m.assignment if m.target is None else m.target
        found.append(
            MemberProgress(
                m,
                {tp: waiting.get(tp, ()) for tp in m.assignment if tp not in target},
                {tp: owners.get(tp, ()) for tp in target if tp not in m.assignment},
                m.epoch is not None and m.epoch < (group.assignment_epoch or 0),
                "PARTITIONS",
            )
        )
    return by_urgency(found)


def blocking_members(group: GroupDescription) -> list[str]:
    """Return a sentence for each member that others wait for."""
    return [
        f"{member_label(p.member)} {pending_revocations(p, format_partitions)}"
        for p in member_progress(group)
        if p.is_blocking
    ]


def describe_progress(progress: Progress, group: GroupDescription) -> list[str]:
    """Return lines about what a member still has to revoke or waits for; none if it has reached its target
    assignment."""
    lines = []
    if progress.has_left_temporarily:
        lines.append("has left temporarily; its partitions stay assigned to it until its session expires")
    if progress.revocations:
        lines.append(pending_revocations(progress, format_partitions))
    owned = {tp: owners for tp, owners in progress.waits.items() if owners}
    free = [tp for tp, owners in progress.waits.items() if not owners]
    if owned:
        lines.append(owned_by_others(owned, format_partitions))
    if free and not progress.has_left_temporarily:
        lines.append(f"gets {format_partitions(free)} with its next heartbeat: no other member owns that")
    if progress.is_behind and not progress.has_left_temporarily and not progress.revocations:
        lines.append(behind_line(progress, group.assignment_epoch))
    return lines


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as Kafka's tool formats an assignment: `orders:0,1;payments:2`."""
    by_topic: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(str(tp.partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or "-"
