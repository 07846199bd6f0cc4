"""A group that moves between the classic protocol and one whose coordinator assigns: what both kinds share.

Consumer groups (KIP-848) and streams groups (KIP-1071) each say what becomes of their members (`convert` of
either). Here is which way is open, what may stand in the way, how the classic group goes on, and how members
of the classic protocol leave a group of the other kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from konvene.errors import Errors
from konvene.groups.audit_members import cause_of
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import Decision as ClassicStep
from konvene.groups.classic.decision import rejected_join, session_key
from konvene.groups.classic.group import ClassicGroup, RebalanceTrace
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.classic.leave import leaving_members
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, topics_of_generation
from konvene.groups.modern.decision import ModernDecision
from konvene.groups.modern.group import get_or_throw_member, get_or_throw_static_member
from konvene.groups.modern.leave import Departure
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Outcome
from konvene.shard.errors import GroupError

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"
"""Migration policies."""


class Blocker(NamedTuple):
    """Something that stands in the way of a group's becoming another kind."""

    code: str
    reason: str
    """A sentence, as the coordinator's refusal ends."""
    member_ids: tuple[str, ...] = ()
    """Whom it is about; nobody: all of the group."""


# --- back to the classic protocol ------------------------------------------------------------------


def may_downgrade(
    group: Any, leaving: Collection[Any], policy: str, most: int, *, replaced: bool = False
) -> bool:
    """Whether those who are left all speak the classic protocol, and may go back to it by themselves.

    `replaced`: the one who leaves comes back with the classic protocol, so as many are left as there are."""
    speak_it = group.classic_members - sum(member.classic is not None for member in leaving)
    left = len(group.members) - len(leaving)
    if speak_it != left or (left <= 0 and not replaced):
        return False
    if replaced and any(member.classic is not None for member in leaving):
        return False
    return policy in (BIDIRECTIONAL, DOWNGRADE) and left + replaced <= most


def to_classic_group(group: Any, members: Iterable[Any], now_ms: int) -> ClassicGroup:
    """Stable at the group's epoch, with these members; what they are told comes with `assigned`."""
    classic = ClassicGroup(group.group_id, ClassicState.STABLE, now_ms, group.epoch, protocol_type=CONSUMER)
    for member in members:
        assert member.classic is not None
        classic.put(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER,
                member.classic.protocols,
            )
        )
    classic.protocol = classic.vote()
    classic.subscribed = topics_of_generation(classic)
    return classic


def downgrade(
    decision: ModernDecision[Any, Any], classic: ClassicGroup, leaving: Sequence[Any], *, rebalance: bool
) -> Outcome:
    """The group goes on as this one. `decision` has the tombstones of all that it was."""
    group, context = decision.group, decision.context
    # A coordinator that starts before the members have joined begins with the rebalance anew.
    due = replace(classic, state_timestamp_ms=classic_log.REBALANCE_DUE_MS) if rebalance else classic
    decision.record(classic_log.to_record(due))
    for member in group.members.values():
        decision.disarm_all(member.member_id)
    classic.hears_earlier = rebalance and classic.protocol == STREAM
    moved = ClassicStep(classic, context)
    for classic_member in classic.members.values():
        moved.arm_session(classic_member)
    decision.causes.insert(0, cause_of(causes.DOWNGRADED, context.now_ms, leaving[0]))
    moved.group.story = RebalanceTrace(context.now_ms, tuple(decision.causes))
    if rebalance:
        moved.start_rebalance()
    else:
        moved.tell(ClassicState.STABLE)
    then = moved.outcome()
    return Outcome(
        (*decision.replies, *then.replies),
        (*decision.records, *then.records),
        then.soft_records,
        (*decision.timers, *then.timers),
        why=then.why,
    )


# --- members of the classic protocol ---------------------------------------------------------------


def classic_member(group: Any, request: SyncGroupRequest | HeartbeatRequest) -> Any:
    """The member of the classic protocol that asks, at its own epoch. Raises `GroupError`."""
    if request.group_instance_id is not None:
        member = get_or_throw_static_member(group, request.member_id, request.group_instance_id)
    else:
        member = get_or_throw_member(group, request.member_id)
    if member.classic is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    if request.generation_id != member.current.epoch:
        raise GroupError(Errors.ILLEGAL_GENERATION)
    return member


def convert_classic_members(
    decision: ModernDecision[Any, Any], classic: ClassicGroup, old: Collection[str] = ()
) -> None:
    """The members of a classic group go on in another kind: who waits is told to come back, and each has its
    session.

    `old`: those whose clients know no REBALANCE_IN_PROGRESS of a join, and end at it; all back off and come
    back when the group is being loaded."""
    decision.replace_classic_group(classic)
    for member in classic.members.values():
        if member.join_waiter is not None:
            is_old = member.member_id in old
            again = Errors.COORDINATOR_LOAD_IN_PROGRESS if is_old else Errors.REBALANCE_IN_PROGRESS
            decision.reply(member.join_waiter, rejected_join(again, member.member_id))
        if member.sync_waiter is not None:
            decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        decision.timers.append(
            Arm(session_key(classic.group_id, member.member_id), member.session_timeout_ms)
        )


def leave_members(
    group: Any, request: LeaveGroupRequest, context: Context
) -> tuple[LeaveGroupResponse, list[Departure]]:
    """What to answer a LeaveGroup, and who goes, of either protocol, each once."""
    answers: list[MemberResponse] = []
    gone: dict[str, Departure] = {}
    for identity in leaving_members(request, context):
        error = Errors.NONE
        try:
            member, kind = _leaving(group, identity, context)
            gone.setdefault(member.member_id, (member, kind, identity.reason))
        except GroupError as refused:
            error = refused.error
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    if context.api_version >= 3:
        return LeaveGroupResponse(members=tuple(answers)), list(gone.values())
    return LeaveGroupResponse(error_code=answers[0].error_code), list(gone.values())


def _leaving(group: Any, identity: MemberIdentity, context: Context) -> tuple[Any, str]:
    """The member, and why it goes: by itself from its own client, else by an administrator."""
    if identity.group_instance_id is None:
        member = get_or_throw_member(group, identity.member_id)
    elif identity.member_id:
        member = get_or_throw_static_member(group, identity.member_id, identity.group_instance_id)
    else:
        holder: Any = group.static_member(identity.group_instance_id)
        if holder is None:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)
        return holder, causes.REMOVED_BY_ADMIN
    own = member.client_id == context.client_id
    return member, causes.MEMBER_LEFT if own else causes.REMOVED_BY_ADMIN
