"""Admission of a heartbeat's member to a consumer or streams group: which member sends it, at a valid epoch.

joins   instance id           member
no      none                  the known one, at a valid epoch; else UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH
no      of this member        the known one, at a valid epoch; of another: FENCED_INSTANCE_ID
yes     none or free          the known one, or a new one
yes     of a member that has  a copy of that member under the new id
        left temporarily
yes     of an active member   UNRELEASED_INSTANCE_ID; but itself, if it joins under its own member id: its
                              response was lost (Kafka 4.4 rejects it until its session has expired)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.groups.modern.decision import ModernDecision, session_key
from konvene.groups.modern.group import (
    JOIN,
    LEAVE_STATIC,
    CachedHeartbeat,
    ModernGroup,
    get_or_throw_member,
    get_or_throw_static_member,
    unreleased_instance_id,
)
from konvene.shard.contract import Arm, Disarm


def cached_heartbeat(
    group: ModernGroup[Any], member_id: str, instance_id: str | None, epoch: int, timeout_ms: int
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to an unchanged heartbeat depends on, and its session timer.

    None if the heartbeat has to be decided: only a member of the new protocol that has its target gets the
    same response again."""
    if group.epoch != group.assignment_epoch or epoch <= JOIN:
        return None
    member = group.members.get(member_id)
    if member is None or member.classic is not None or epoch != member.current.epoch:
        return None
    if not member.is_reconciled_to(group.assignment_epoch) or instance_id not in (None, member.instance_id):
        return None
    key = session_key(group.group_id, member_id)
    return CachedHeartbeat(group, member), (Arm(key, timeout_ms),)


def admit(
    decision: ModernDecision[Any, Any],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    check_epoch: Callable[[Any], None],
    new_member: Callable[[str], Any],
    *,
    may_resume: bool = True,
) -> tuple[Any, str | None]:
    """Return the member before this heartbeat, and the member id that it replaces, if any. Raises
    `GroupError`.

    `check_epoch` raises for a known member whose epoch is not valid; `may_resume`: an active static member
    may join again under its own member id."""
    group, joins = decision.group, epoch == JOIN
    if instance_id is None:
        if joins and member_id not in group.members:
            return new_member(member_id), None
        member = get_or_throw_member(group, member_id)
        check_epoch(member)
        return member, None
    if not joins:
        member = get_or_throw_static_member(group, member_id, instance_id)
        check_epoch(member)
        return member, None
    holder: Any = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or new_member(member_id), None
    if holder.current.epoch != LEAVE_STATIC and holder.classic is None:
        if holder.member_id == member_id and may_resume:
            return holder, None
        raise unreleased_instance_id(member_id, instance_id, holder)
    return decision.replace_static_member(holder, member_id), holder.member_id
