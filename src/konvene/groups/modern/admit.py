"""Admission of a heartbeat to a consumer or streams group: find its member, and check the member's epoch.

    epoch   instance id                  member that sends the heartbeat
    > 0     none                         the one with the request's member id, if the epoch is valid for it;
                                         else UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH
    > 0     of the same member           the same
    > 0     of another member            FENCED_INSTANCE_ID
    0       none, or an unused one       the one with the request's member id, or a new one
    0       of a member that left        a copy of that member under the new member id, which replaces it
            temporarily, or is classic
    0       of any other member          UNRELEASED_INSTANCE_ID, unless it has the request's member id

In the last case an active static member joins again under its own member id, because its response was lost.
Kafka 4.4 rejects it until its session has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from konvene.groups.modern.decision import ModernDecision, session_key
from konvene.groups.modern.group import (
    JOIN,
    LEAVE_STATIC,
    CachedHeartbeat,
    Member,
    ModernGroup,
    get_or_throw_member,
    get_or_throw_static_member,
    unreleased_instance_id,
)
from konvene.shard.contract import Arm, Disarm

M = TypeVar("M", bound=Member)


def cached_heartbeat(
    group: ModernGroup[Any], member_id: str, instance_id: str | None, epoch: int, timeout_ms: int
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to a repeated heartbeat depends on, and the session timer that it arms.

    None if each heartbeat has to be decided: only a member of the group's own protocol that has reached its
    target gets the same response again."""
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
    decision: ModernDecision[Any, M],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    check_epoch: Callable[[M], None],
    new_member: Callable[[str], M],
    *,
    may_resume: bool = True,
) -> tuple[M, str | None]:
    """Return the member that sends a heartbeat, as it was before, and the id of a member that it replaces.

    The id is None if it replaces no other member. `check_epoch` raises `GroupError` if the epoch is not valid
    for an existing member; `new_member` makes a member of a new id. Without `may_resume`, an active static
    member is also rejected if it joins again under its own member id. Raises `GroupError`."""
    group: ModernGroup[M] = decision.group
    joins = epoch == JOIN
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
    holder = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or new_member(member_id), None
    if holder.current.epoch != LEAVE_STATIC and holder.classic is None:
        if holder.member_id == member_id and may_resume:
            return holder, None
        raise unreleased_instance_id(member_id, instance_id, holder)
    return decision.replace_static_member(holder, member_id), holder.member_id
