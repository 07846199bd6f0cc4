"""How members of a share group go: they leave, or their time is over.

All that is kept of them goes, the group's epoch moves, and what they had acquired is free again; of those who
leave, when they have had time to answer for it. The last one leaves an empty group behind, which is at its
own epoch; it stays until somebody deletes it, with all its share partitions.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from konvene.errors import Errors
from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.heartbeat_intervals import grace_ms
from konvene.groups.modern.group import known_member
from konvene.groups.share.decision import Decision, session_key
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.work import GROUP_EMPTY, MEMBER_GONE, MEMBER_LEFT
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Arm, Context, Effect, Outcome
from konvene.shard.errors import GroupError

Groups = MutableMapping[str, Any]


def leave(groups: Groups, request: ShareGroupHeartbeatRequest, context: Context) -> Outcome:
    """A heartbeat at epoch -1. Raises `GroupError`."""
    step = Decision(share_group(groups, request.group_id), context)
    member = known_member(step.group, request.member_id)
    step.reply(
        context.waiter,
        ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch),
    )
    return _fence(step, member, causes.MEMBER_LEFT, MEMBER_LEFT)


def share_group(groups: Groups, group_id: str) -> ShareGroup:
    """The group of that name, if it is one of ours. Raises GROUP_ID_NOT_FOUND."""
    group = groups.get(group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def _fence(step: Decision, member: Member, kind: str, effect: str) -> Outcome:
    """The member goes. `step` has the reply already."""
    group = step.group
    step.cause(kind, member)
    step.remove(member)
    step.bump(hash_of(group.names_with((member,)), step.context))
    step.effects.append(Effect(effect, (group.group_id, member.member_id)))
    if len(group.members) == 1:
        step.is_empty_at_its_epoch()
        step.effects.append(Effect(GROUP_EMPTY, group.group_id))
    return step.outcome()


def session_expired(group: ShareGroup, member_id: str, context: Context) -> Outcome:
    """No heartbeat came in time."""
    member = group.members.get(member_id)
    if member is None:
        return NOTHING
    return _fence(Decision(group, context), member, causes.SESSION_EXPIRED, MEMBER_GONE)


def disconnected(group: ShareGroup, member_id: str, context: Context) -> Outcome:
    """A member has `konvene.session.disconnect.grace.ms` to be heard of again, if that is set."""
    if member_id not in group.members:
        return NOTHING
    config = context.group_configs.of(group.group_id)
    left_ms = grace_ms("share", config, context.config, context.members)
    if left_ms is None:
        return NOTHING
    return Outcome(timers=(Arm(session_key(group.group_id, member_id), left_ms),))


def loaded(group: ShareGroup, context: Context) -> Outcome:
    """After a restart each member has its session from the beginning."""
    step = Decision(group, context)
    for member_id in group.members:
        step.arm_session(member_id)
    return step.outcome()
