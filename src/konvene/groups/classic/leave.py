"""LeaveGroup: remove members that leave or that an administrator removes, and start one rebalance."""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.classic.decision import Decision, session_key
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError


def leave(known: ClassicGroup | None, request: LeaveGroupRequest, context: Context) -> Outcome:
    """Remove the members that the request names, and start a rebalance if there were any.

    Raises `GroupError` for an empty group id; a member that does not exist is an error in its response.
    """
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    identities = leaving_members(request, context)
    if known is None:
        return _respond(context, tuple(_member_response(m, Errors.UNKNOWN_MEMBER_ID) for m in identities))
    decision = Decision(known, context)
    responses = tuple(
        _member_response(identity, _remove_identity(decision, identity)) for identity in identities
    )
    if any(a.error_code == Errors.NONE for a in responses):
        _rebalance_after_leave(decision)
    return decision.outcome()._replace(replies=(*decision.replies, *_respond(context, responses).replies))


def leaving_members(request: LeaveGroupRequest, context: Context) -> tuple[MemberIdentity, ...]:
    """Return the identities of the members to remove; before version 3 a request names only one."""
    if context.api_version < 3:
        return (MemberIdentity(member_id=request.member_id),)
    return request.members


def _remove_identity(decision: Decision, identity: MemberIdentity) -> Errors:
    group = decision.group
    if not identity.member_id and identity.group_instance_id is not None:
        holder = group.instances.get(identity.group_instance_id)
        if holder is None:
            return Errors.UNKNOWN_MEMBER_ID
        _remove(decision, group.members[holder], causes.REMOVED_BY_ADMIN, identity.reason)
        return Errors.NONE
    if identity.member_id in group.pending_joins:
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            decision.cause(causes.MEMBER_LEFT, _pending_member(decision, identity.member_id), identity.reason)
        group.drop(identity.member_id)
        decision.disarm(session_key(group.group_id, identity.member_id))
        return Errors.NONE
    try:
        member = group.check_member(identity.member_id, identity.group_instance_id)
    except GroupError as refused:
        return refused.error
    _remove(decision, member, _departure_cause(decision, member), identity.reason)
    return Errors.NONE


def _pending_member(decision: Decision, member_id: str) -> Member:
    """Return a placeholder for a member id that was assigned and has not joined, to be named in the audit."""
    return Member(member_id, None, decision.context.client_id, decision.context.client_host, 0, 0, "", ())


def _departure_cause(decision: Decision, member: Member) -> str:
    """Return MEMBER_LEFT if the member's own client sent the request, otherwise REMOVED_BY_ADMIN."""
    return causes.MEMBER_LEFT if member.client_id == decision.context.client_id else causes.REMOVED_BY_ADMIN


def _remove(decision: Decision, member: Member, cause: str, reason: str | None) -> None:
    decision.cause(cause, member, reason)
    decision.remove(member)


def _rebalance_after_leave(decision: Decision) -> None:
    """Rebalance the group after the members were removed.

    In Stable and CompletingRebalance a rebalance starts; otherwise the join in progress is completed if all
    remaining members have joined. As in Kafka, this also happens if only member ids that had not joined were
    removed.
    """
    if decision.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        decision.start_rebalance()
    else:
        decision.maybe_complete_join()


def _member_response(identity: MemberIdentity, error: Errors) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
    )


def _respond(context: Context, responses: tuple[MemberResponse, ...]) -> Outcome:
    if context.api_version >= 3:
        return Outcome((Reply(context.waiter, LeaveGroupResponse(members=responses)),))
    error = responses[0].error_code
    return Outcome((Reply(context.waiter, LeaveGroupResponse(error_code=error)),))
