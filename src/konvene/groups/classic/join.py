"""JoinGroup: a member joins the next generation.

The cases, in the order in which they are checked:

    no such group, member id given             UNKNOWN_MEMBER_ID
    the group is full                          GROUP_MAX_SIZE_REACHED
    no protocol in common with all members     INCONSISTENT_GROUP_PROTOCOL
    a new member id would be too long          UNKNOWN_SERVER_ERROR
    new dynamic member, v4+                    MEMBER_ID_REQUIRED with an id to rejoin with
    new member otherwise                       is added; a rebalance starts or continues
    known instance id without a member id      replaces the member of that instance id (KIP-345)
    member in PreparingRebalance               waits for the generation
    member in CompletingRebalance, Stable      gets the same generation again if nothing changed, else a
                                               rebalance; a leader in Stable always starts one

The waiter of a pending JoinGroup is the member's `join_waiter`; it is answered when the generation starts.
"""

from __future__ import annotations

from dataclasses import replace

from konvene.errors import Errors
from konvene.groups.classic import log
from konvene.groups.classic.decision import Decision, rejected_join, session_key
from konvene.groups.classic.group import ClassicGroup, Member, Protocols, State
from konvene.groups.classic.subscriptions import read_subscription, topics_of_generation
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.sync_group import SyncGroupResponse
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome
from konvene.shard.errors import GroupError

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that was just added may wait without a heartbeat (Kafka's constant)."""

LONGEST_MEMBER_ID = 0x7FFF
"""In bytes. A member id is made from the client id, and must fit into a string of the protocol."""

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def join(known: ClassicGroup | None, request: JoinGroupRequest, context: Context) -> Outcome:
    """Admit, update or reject the member that sends a JoinGroup, case by case. Raises `GroupError`."""
    check(request, context)
    config = context.config
    if known is None and request.member_id:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    decision = Decision(known or ClassicGroup(request.group_id, state_timestamp_ms=context.now_ms), context)
    group = decision.group
    if not _accepts_joining_member(group, request.member_id, config["group.max.size"]):
        decision.reply(context.waiter, rejected_join(Errors.GROUP_MAX_SIZE_REACHED))
        if request.member_id:
            # A known member, or one with an id that was handed out, is removed. The rebalance of the others
            # continues with their next request, or when the join times out.
            group.drop(request.member_id)
            decision.disarm(session_key(group.group_id, request.member_id))
    elif not group.supports(request.protocol_type, [p.name for p in request.protocols]):
        decision.reply(context.waiter, rejected_join(Errors.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif not request.member_id:
        _join_new(decision, request)
    else:
        _join_known(decision, request)
    if known is None and not decision.records:
        # A new group is written to the log, empty.
        decision.records.append(
            log.to_record(ClassicGroup(group.group_id, state_timestamp_ms=context.now_ms))
        )
    return decision.outcome()


def check(request: JoinGroupRequest, context: Context) -> None:
    """Validate the fields that do not depend on the group. Raises `GroupError`."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    config = context.config
    shortest, longest = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
    if not shortest <= request.session_timeout_ms <= longest:
        raise GroupError(Errors.INVALID_SESSION_TIMEOUT)


def _accepts_joining_member(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    if group.state is State.PREPARING_REBALANCE:
        # Pending members count, so that the last to rejoin are rejected if `group.max.size` was lowered.
        member = group.members.get(member_id)
        return (member is not None and member.join_waiter is not None) or group.waiting < max_size
    if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
        return member_id in group.members or len(group.members) < max_size
    return True


def _join_new(decision: Decision, request: JoinGroupRequest) -> None:
    group, context = decision.group, decision.context
    instance_id = request.group_instance_id
    prefix = instance_id if instance_id is not None else context.client_id
    member_id = f"{prefix}-{context.fresh_ids[0]}"
    if len(member_id.encode()) > LONGEST_MEMBER_ID:
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is not None:
            _replace_static(decision, request, group.members[holder], member_id)
        else:
            _add(decision, request, member_id)
    elif context.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
        group.pending_joins.add(member_id)
        decision.arm(session_key(group.group_id, member_id), request.session_timeout_ms)
        decision.reply(context.waiter, rejected_join(Errors.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(decision, request, member_id)


def _join_known(decision: Decision, request: JoinGroupRequest) -> None:
    group = decision.group
    if request.member_id in group.pending_joins:
        if request.group_instance_id is not None:
            # Ids are handed out to dynamic members only; Kafka fails here as well.
            raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
        _add(decision, request, request.member_id)
        return
    member = group.check_member(request.member_id, request.group_instance_id)
    changed = member.protocols != _protocols(request)
    is_stable_leader = group.state is State.STABLE and group.leader == member.member_id
    if group.state is State.PREPARING_REBALANCE:
        _update(decision, request, member)
        decision.maybe_prepare_rebalance_or_complete_join()
    elif group.state is State.EMPTY:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    elif changed or is_stable_leader:
        is_leader = group.leader == member.member_id
        decision.cause(_rejoin_cause(request, member, changed, is_leader), member, request.reason)
        _update(decision, request, member)
        decision.maybe_prepare_rebalance_or_complete_join()
    else:
        # The response was lost, or the member only needs the generation again.
        decision.reply(decision.context.waiter, decision.joined_response(member))


def _add(decision: Decision, request: JoinGroupRequest, member_id: str) -> None:
    group, context = decision.group, decision.context
    member = Member(
        member_id,
        request.group_instance_id,
        context.client_id,
        context.client_host,
        rebalance_timeout_ms(request),
        request.session_timeout_ms,
        request.protocol_type,
        _protocols(request),
        join_waiter=context.waiter,
        joined_ms=context.now_ms,
        is_new=True,
    )
    decision.cause(causes.MEMBER_JOINED, member, request.reason)
    if group.state is State.PREPARING_REBALANCE and group.was_empty:
        group.member_added = True
    group.put(member)
    decision.arm(session_key(group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    decision.maybe_prepare_rebalance_or_complete_join()


def _update(decision: Decision, request: JoinGroupRequest, member: Member) -> None:
    """Update a member that rejoins, and make this JoinGroup its pending one."""
    if member.join_waiter is not None and member.join_waiter != decision.context.waiter:
        # A retry on another connection: the older request is answered as well.
        decision.reply(member.join_waiter, rejected_join(Errors.REBALANCE_IN_PROGRESS, member.member_id))
    if member.sync_waiter is not None:
        decision.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
    decision.group.put(
        replace(
            member,
            protocols=_protocols(request),
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            join_waiter=decision.context.waiter,
            sync_waiter=None,
            joined_ms=decision.context.now_ms,
        )
    )


def _replace_static(decision: Decision, request: JoinGroupRequest, old: Member, member_id: str) -> None:
    """Replace a static member that rejoins under a new member id: it keeps its assignment (KIP-345)."""
    group = decision.group
    fenced = Errors.FENCED_INSTANCE_ID
    decision.answer_join(old, rejected_join(fenced, old.member_id))
    if old.sync_waiter is not None:
        decision.reply(old.sync_waiter, SyncGroupResponse(error_code=fenced))
    new = _replace_member_id(group, group.members[old.member_id], member_id)
    decision.disarm(session_key(group.group_id, old.member_id))
    # The session has the old timeout; a new one applies from the next heartbeat on.
    decision.arm_session(new)
    changed = old.protocols != _protocols(request)
    if group.state is State.COMPLETING_REBALANCE:
        decision.cause(causes.STATIC_MEMBER_REJOINS, new, request.reason)
        _update(decision, request, new)
        decision.start_rebalance()
        return
    _update(decision, request, new)
    if group.state is not State.STABLE:
        decision.maybe_complete_join()
    elif group.select_protocol() == group.protocol:
        _keep_generation(decision, group.members[member_id], old.member_id)
    else:
        is_leader = group.leader == member_id
        decision.cause(
            _rejoin_cause(request, old, changed, is_leader), group.members[member_id], request.reason
        )
        decision.start_rebalance()


def _replace_member_id(group: ClassicGroup, old: Member, member_id: str) -> Member:
    """Replace a member's id in the group; return it without pending requests. A leader stays leader."""
    was_leader = group.leader == old.member_id
    sync_is_pending = old.member_id in group.pending_syncs
    group.drop(old.member_id)
    new = replace(old, member_id=member_id, join_waiter=None, sync_waiter=None)
    group.put(new)
    if was_leader:
        group.leader = member_id
    if sync_is_pending:
        group.pending_syncs.add(member_id)
    return new


def _keep_generation(decision: Decision, member: Member, old_member_id: str) -> None:
    """Answer a rejoined static member with the current generation, and write its new member id to the log.

    No rebalance follows. The subscription of the member may have changed, so the topics to which the group
    subscribes are updated.
    """
    group = decision.group
    was_leader = group.leader == member.member_id
    group.subscribed = topics_of_generation(group)
    decision.records.append(log.to_record(group))
    if decision.context.api_version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
        response = decision.joined_response(member, skip_assignment=was_leader)
    else:
        # An older client would compute an assignment as the leader, so the leader is its old member id.
        response = decision.joined_response(member).replace(
            members=(), leader=old_member_id if was_leader else group.leader or ""
        )
    decision.answer_join(member, response)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout of a request; before version 1 it is the session timeout."""
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((p.name, p.metadata) for p in request.protocols)


# --- the cause of a rejoin ----------------------------------------------------------------------

_REASONS = (
    ("need to revoke partitions", causes.COOPERATIVE_FOLLOW_UP),
    ("cached metadata has changed", causes.TOPIC_METADATA_CHANGED),
)
"""Parts of the Java client's reasons (KIP-800), and the causes that they mean."""


def _rejoin_cause(request: JoinGroupRequest, member: Member, changed: bool, is_leader: bool) -> str:
    """Return the cause of a rejoin: by the reason that the client gives, otherwise by what has changed."""
    for text, cause in _REASONS:
        if text in (request.reason or ""):
            return cause
    if changed:
        before = read_subscription(member.protocols[0][1])
        after = read_subscription(request.protocols[0].metadata)
        if before is None or after is None or before.topics != after.topics:
            return causes.MEMBER_METADATA_CHANGED
        if before.owned - after.owned:
            return causes.COOPERATIVE_FOLLOW_UP
    return causes.LEADER_REJOINED if is_leader else causes.MEMBER_METADATA_CHANGED
