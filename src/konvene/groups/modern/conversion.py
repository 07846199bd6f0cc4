"""Conversion between classic groups and consumer or streams groups: the common steps.

The `conversion` module of each type defines what happens to its members (KIP-848 for consumer groups; for
streams groups, KIP-1071 with konvene's own migration). This module has the migration policies, what may block
a conversion, the classic group that a downgrade creates, and the requests that classic members send to a
consumer or streams group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

from konvene.errors import Errors
from konvene.groups.audit_members import cause_of
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import Decision as ClassicDecision
from konvene.groups.classic.decision import rejected_join, session_key
from konvene.groups.classic.group import ClassicGroup, RebalanceTrace
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.classic.leave import leaving_members
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, topics_of_generation
from konvene.groups.modern.decision import ModernDecision
from konvene.groups.modern.group import (
    Member,
    ModernGroup,
    get_or_throw_member,
    get_or_throw_static_member,
)
from konvene.groups.modern.leave import Departure
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Outcome
from konvene.shard.errors import GroupError

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"
"""The values of the migration policies: in which directions groups may be converted."""


M = TypeVar("M", bound=Member)


class ConvertibleGroup(Protocol):
    """A consumer or streams group, which may have members of the classic protocol."""

    @property
    def members(self) -> Mapping[str, Member]: ...

    @property
    def classic_members(self) -> int: ...


class Blocker(NamedTuple):
    """A reason why a group cannot be converted."""

    code: str
    """A short name of the reason, such as `policy` or `size`."""
    reason: str
    """A sentence, as in the coordinator's error message."""
    member_ids: tuple[str, ...] = ()
    """The members concerned; empty: the whole group."""


# --- downgrade ------------------------------------------------------------------


def may_downgrade(
    group: ConvertibleGroup,
    leaving: Collection[Member],
    policy: str,
    max_size: int,
    *,
    replaced: bool = False,
) -> bool:
    """Return whether the group is downgraded when the `leaving` members leave.

    All remaining members must use the classic protocol, and the policy and `max_size` must allow it.
    `replaced`: the leaving member is a static one that rejoins with the classic protocol, so it counts as
    remaining."""
    classic_members = group.classic_members - sum(member.classic is not None for member in leaving)
    remaining = len(group.members) - len(leaving)
    if classic_members != remaining or (remaining <= 0 and not replaced):
        return False
    if replaced and any(member.classic is not None for member in leaving):
        return False
    return policy in (BIDIRECTIONAL, DOWNGRADE) and remaining + replaced <= max_size


def to_classic_group(group: ModernGroup[Any], members: Iterable[Member], now_ms: int) -> ClassicGroup:
    """Return the classic group that a downgrade creates: Stable at the group's epoch, nothing assigned."""
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
    classic.protocol = classic.select_protocol()
    classic.subscribed = topics_of_generation(classic)
    return classic


def downgrade(
    decision: ModernDecision[Any, M], classic: ClassicGroup, leaving: Sequence[M], *, rebalance: bool
) -> Outcome:
    """Return the outcome of a downgrade to the classic group `classic`, with its record.

    The caller has added the tombstones of the present group to the decision. The first of the `leaving`
    members is recorded as the cause. `rebalance`: the classic group starts a rebalance at once, instead of
    being Stable."""
    group, context = decision.group, decision.context
    # A coordinator that loads the group before all members have rejoined starts the rebalance again.
    due = replace(classic, state_timestamp_ms=classic_log.REBALANCE_DUE_MS) if rebalance else classic
    decision.record(classic_log.to_record(due))
    for member in group.members.values():
        decision.disarm_all(member.member_id)
    classic.accepts_earlier_epochs = rebalance and classic.protocol == STREAM
    classic_decision = ClassicDecision(classic, context)
    for classic_member in classic.members.values():
        classic_decision.arm_session(classic_member)
    decision.causes.insert(0, cause_of(causes.DOWNGRADED, context.now_ms, leaving[0]))
    classic_decision.group.trace = RebalanceTrace(context.now_ms, tuple(decision.causes))
    if rebalance:
        classic_decision.start_rebalance()
    else:
        classic_decision.audit_generation(ClassicState.STABLE)
    rebalance_outcome = classic_decision.outcome()
    return Outcome(
        (*decision.replies, *rebalance_outcome.replies),
        (*decision.records, *rebalance_outcome.records),
        rebalance_outcome.soft_records,
        (*decision.timers, *rebalance_outcome.timers),
        why=rebalance_outcome.why,
    )


# --- members of the classic protocol ---------------------------------------------------------------


def classic_member(group: ModernGroup[M], request: SyncGroupRequest | HeartbeatRequest) -> M:
    """Return the member that sends this request of the classic protocol. Raises `GroupError`.

    The member must use the classic protocol, and the request's generation must be the member's epoch."""
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
    decision: ModernDecision[Any, Any], classic: ClassicGroup, without_rejoin: Collection[str] = ()
) -> None:
    """Delete the record of a classic group that is upgraded, and keep its members.

    Pending JoinGroups and SyncGroups are answered so that the members rejoin, and each member's session
    timer is started. `without_rejoin`: ids of members whose clients fail if a JoinGroup is answered with
    REBALANCE_IN_PROGRESS. They get COORDINATOR_LOAD_IN_PROGRESS, on which every client backs off and
    retries."""
    decision.replace_classic_group(classic)
    for member in classic.members.values():
        if member.join_waiter is not None:
            cannot_rejoin = member.member_id in without_rejoin
            error = Errors.COORDINATOR_LOAD_IN_PROGRESS if cannot_rejoin else Errors.REBALANCE_IN_PROGRESS
            decision.reply(member.join_waiter, rejected_join(error, member.member_id))
        if member.sync_waiter is not None:
            decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        decision.timers.append(
            Arm(session_key(classic.group_id, member.member_id), member.session_timeout_ms)
        )


def leave_members(
    group: ModernGroup[M], request: LeaveGroupRequest, context: Context
) -> tuple[LeaveGroupResponse, list[Departure[M]]]:
    """Return the response to a LeaveGroup, and the departures of members that it removes, one per member.

    The group is not changed: the caller removes the members."""
    responses: list[MemberResponse] = []
    departures: dict[str, Departure[M]] = {}
    for identity in leaving_members(request, context):
        error = Errors.NONE
        try:
            member, cause = _leaving(group, identity, context)
            departures.setdefault(member.member_id, (member, cause, identity.reason))
        except GroupError as refused:
            error = refused.error
        responses.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    if context.api_version >= 3:
        return LeaveGroupResponse(members=tuple(responses)), list(departures.values())
    return LeaveGroupResponse(error_code=responses[0].error_code), list(departures.values())


def _leaving(group: ModernGroup[M], identity: MemberIdentity, context: Context) -> tuple[M, str]:
    """Return the member that an entry of a LeaveGroup names, and the cause of its departure.

    The cause is MEMBER_LEFT if the member's own client sent the request, otherwise REMOVED_BY_ADMIN."""
    if identity.group_instance_id is None:
        member = get_or_throw_member(group, identity.member_id)
    elif identity.member_id:
        member = get_or_throw_static_member(group, identity.member_id, identity.group_instance_id)
    else:
        holder = group.static_member(identity.group_instance_id)
        if holder is None:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)
        return holder, causes.REMOVED_BY_ADMIN
    is_own_request = member.client_id == context.client_id
    return member, causes.MEMBER_LEFT if is_own_request else causes.REMOVED_BY_ADMIN
