"""LeaveGroup: members leave, or an administrator removes them. However many go, one rebalance follows."""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.classic.decision import Decision, session_key
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome, Reply
from konvene.shard.errors import GroupError


def leave(known: ClassicGroup | None, request: LeaveGroupRequest, context: Context) -> Outcome:
    """Decide a LeaveGroup. Raises `GroupError`. Before version 3 the request names one member."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    leaving = leaving_members(request, context)
    if known is None:
        return _answer(context, tuple(_answered(m, Errors.UNKNOWN_MEMBER_ID) for m in leaving))
    decision = Decision(known, context)
    answers = tuple(_answered(identity, _take_out(decision, identity)) for identity in leaving)
    if any(a.error_code == Errors.NONE for a in answers):
        _close_ranks(decision)
    return decision.outcome()._replace(replies=(*decision.replies, *_answer(context, answers).replies))


def leaving_members(request: LeaveGroupRequest, context: Context) -> tuple[MemberIdentity, ...]:
    """Who leaves: one member before version 3."""
    if context.api_version < 3:
        return (MemberIdentity(member_id=request.member_id),)
    return request.members


def _take_out(decision: Decision, identity: MemberIdentity) -> Errors:
    group = decision.group
    if not identity.member_id and identity.group_instance_id is not None:
        holder = group.instances.get(identity.group_instance_id)
        if holder is None:
            return Errors.UNKNOWN_MEMBER_ID
        _remove(decision, group.members[holder], causes.REMOVED_BY_ADMIN, identity.reason)
        return Errors.NONE
    if identity.member_id in group.pending_joins:
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            decision.cause(causes.MEMBER_LEFT, _with_id_only(decision, identity.member_id), identity.reason)
        group.drop(identity.member_id)
        decision.disarm(session_key(group.group_id, identity.member_id))
        return Errors.NONE
    try:
        member = group.check_member(identity.member_id, identity.group_instance_id)
    except GroupError as refused:
        return refused.error
    _remove(decision, member, _kind(decision, member), identity.reason)
    return Errors.NONE


def _with_id_only(decision: Decision, member_id: str) -> Member:
    """Who was handed an id and gives it back, as far as it is known."""
    return Member(member_id, None, decision.context.client_id, decision.context.client_host, 0, 0, "", ())


def _kind(decision: Decision, member: Member) -> str:
    """A member leaves by itself from its own client; anybody else is an administrator."""
    return causes.MEMBER_LEFT if member.client_id == decision.context.client_id else causes.REMOVED_BY_ADMIN


def _remove(decision: Decision, member: Member, kind: str, reason: str | None) -> None:
    decision.cause(kind, member, reason)
    decision.remove(member)


def _close_ranks(decision: Decision) -> None:
    """Whoever left: a group that has a generation makes another one, also when only an id was given back."""
    if decision.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        decision.start_rebalance()
    else:
        decision.go_on()


def _answered(identity: MemberIdentity, error: Errors) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
    )


def _answer(context: Context, answers: tuple[MemberResponse, ...]) -> Outcome:
    if context.api_version >= 3:
        return Outcome((Reply(context.waiter, LeaveGroupResponse(members=answers)),))
    error = answers[0].error_code
    return Outcome((Reply(context.waiter, LeaveGroupResponse(error_code=error)),))
