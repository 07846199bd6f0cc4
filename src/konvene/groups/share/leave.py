"""How members leave a share group: by themselves, or when their session expires.

Their records are deleted, the group's epoch is bumped, and the records that they acquired are released; a
member that leaves by itself has some time to acknowledge them first. When the last member leaves, the
assignment of the empty group is complete at once; the group and its share partitions stay until an
administrator deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.modern.group import get_or_throw_group, get_or_throw_member
from konvene.groups.modern.leave import MemberTimers
from konvene.groups.share.decision import Decision
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.work import GROUP_EMPTY, MEMBER_FENCED, MEMBER_LEFT
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.shard import causes
from konvene.shard.contract import Context, Effect, Outcome

Groups = Mapping[str, object]


def leave(groups: Groups, request: ShareGroupHeartbeatRequest, context: Context) -> Outcome:
    """Remove a member that sent a heartbeat at epoch -1. Raises `GroupError`."""
    group = get_or_throw_group(groups, request.group_id, ShareGroup)
    decision = Decision(group, context)
    member = get_or_throw_member(group, request.member_id)
    decision.reply(
        context.waiter,
        ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch),
    )
    return _fence(decision, member, causes.MEMBER_LEFT, MEMBER_LEFT)


def _fence(decision: Decision, member: Member, cause: str, effect: str) -> Outcome:
    """Remove a member, and return the outcome of the decision.

    `cause`: the kind of departure, for the audit. `effect`: with MEMBER_FENCED the shell releases the records
    that the member acquired; with MEMBER_LEFT the member may still acknowledge them for some time.
    """
    group = decision.group
    decision.cause(cause, member)
    decision.remove(member)
    decision.bump(hash_of(group.names_with((member,)), decision.context))
    decision.effects.append(Effect(effect, (group.group_id, member.member_id)))
    if len(group.members) == 1:
        decision.assign_nothing()
        decision.effects.append(Effect(GROUP_EMPTY, group.group_id))
    return decision.outcome()


TIMERS: Final[MemberTimers[ShareGroup]] = MemberTimers(
    lambda group, member, cause, context: _fence(Decision(group, context), member, cause, MEMBER_FENCED)
)


def load(group: ShareGroup, context: Context) -> Outcome:
    """Restart the session timer of each member after a load."""
    decision = Decision(group, context)
    decision.arm_all()
    return decision.outcome()
