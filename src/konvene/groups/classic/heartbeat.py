"""Heartbeat: starts the member's session anew, and changes nothing else. The most frequent request of all."""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.classic.decision import session_key
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

_ALIVE = HeartbeatResponse()
_REJOIN = HeartbeatResponse(error_code=Errors.REBALANCE_IN_PROGRESS)


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest, context: Context) -> Outcome:
    """Handle a Heartbeat request. Raises `GroupError`."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    if group is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    response = _REJOIN if group.state is State.PREPARING_REBALANCE else _ALIVE
    return Outcome(
        (Reply(context.waiter, response),),
        timers=(Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),),
    )


def cacheable(
    group: ClassicGroup, request: HeartbeatRequest, context: Context
) -> tuple[ClassicGroup, tuple[Arm | Disarm, ...]] | None:
    """Return the group on which the response depends, and the session timer; None if the heartbeat may
    fail."""
    if group.state is State.PREPARING_REBALANCE or request.generation_id != group.generation:
        return None
    member = group.members.get(request.member_id)
    if member is None or request.group_instance_id not in (None, member.instance_id):
        return None
    return group, (Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),)
