"""SyncGroup: the leader sends all assignments, and every member receives its own."""

from __future__ import annotations

from dataclasses import replace

from konvene.errors import Errors
from konvene.groups.classic.decision import Decision
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.shard.contract import Context, Outcome
from konvene.shard.errors import GroupError


def sync(known: ClassicGroup | None, request: SyncGroupRequest, context: Context) -> Outcome:
    """Return the member's assignment if it is known, else keep the request pending until the leader sends it.

    Raises `GroupError`.
    """
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    if known is None or known.state is State.EMPTY:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    member = known.check_member(request.member_id, request.group_instance_id)
    known.check_generation(request.generation_id)
    if _differs(request.protocol_type, known.protocol_type) or _differs(
        request.protocol_name, known.protocol
    ):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    if known.state is State.PREPARING_REBALANCE:
        raise GroupError(Errors.REBALANCE_IN_PROGRESS)
    decision = Decision(known, context)
    decision.remove_pending_sync(member.member_id)
    if known.state is State.STABLE:
        decision.reply(context.waiter, decision.assignment_response(member))
        return decision.outcome()
    if member.sync_waiter is not None:
        # A retry on another connection: the older request is answered as well.
        decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
    decision.group.put(replace(member, sync_waiter=context.waiter))
    if member.member_id == known.leader:
        decision.propagate_assignment({a.member_id: a.assignment for a in request.assignments})
    return decision.outcome()


def _differs(requested: str | None, current: str | None) -> bool:
    """Return whether a request names another protocol (or type) than the group's current one.

    `requested` is None in requests before version 5: these do not differ.
    """
    return requested is not None and requested != current
