"""Heartbeat: restart the member's session, and answer whether it has to rejoin. The most frequent request."""

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
    """Restart the member's session; answer REBALANCE_IN_PROGRESS if it has to rejoin. Raises `GroupError`."""
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
    """Return the group and the session timer if the response stays the same while the group is unchanged.

    Return None for a heartbeat that is, or may be, answered with an error.
    """
    if group.state is State.PREPARING_REBALANCE or request.generation_id != group.generation:
        return None
    member = group.members.get(request.member_id)
    if member is None or request.group_instance_id not in (None, member.instance_id):
        return None
    return group, (Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),)
