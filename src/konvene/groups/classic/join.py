"""JoinGroup: a member asks to be in the next generation.

Cases, in the order in which they are decided:

    no such group, member id given             UNKNOWN_MEMBER_ID
    no room                                    GROUP_MAX_SIZE_REACHED
    protocols nobody else has                  INCONSISTENT_GROUP_PROTOCOL
    an id that would be too long to be told    UNKNOWN_SERVER_ERROR
    new dynamic member, v4+                    MEMBER_ID_REQUIRED with an id to come back with
    new member otherwise                       is added; a rebalance starts or goes on
    known instance id without a member id      takes the old one's place (KIP-345)
    member in PreparingRebalance               waits for the generation
    member in CompletingRebalance, Stable      the same generation again if nothing changed, else a rebalance;
                                               a leader in Stable always starts one

A member whose answer is held back waits under `join_waiter`; `decision` answers when the generation is made.
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
"""In bytes: a member's id is made from its client id, and must fit into a string of the protocol."""

FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def join(known: ClassicGroup | None, request: JoinGroupRequest, context: Context) -> Outcome:
    """Decide a JoinGroup. Raises `GroupError`; the answer then carries the member id of the request."""
    check(request, context)
    config = context.config
    if known is None and request.member_id:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    decision = Decision(known or ClassicGroup(request.group_id, state_timestamp_ms=context.now_ms), context)
    group = decision.group
    if not _has_room(group, request.member_id, config["group.max.size"]):
        decision.reply(context.waiter, rejected_join(Errors.GROUP_MAX_SIZE_REACHED))
        if request.member_id:
            # A member, or an id that was handed out, that finds no room any more is out. The others go on
            # when one of them asks, or when the time to join is up.
            group.drop(request.member_id)
            decision.disarm(session_key(group.group_id, request.member_id))
    elif not group.supports(request.protocol_type, [p.name for p in request.protocols]):
        decision.reply(context.waiter, rejected_join(Errors.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif not request.member_id:
        _join_new(decision, request)
    else:
        _join_known(decision, request)
    if known is None and not decision.records:
        # A group that is heard of for the first time is written down, empty.
        decision.records.append(
            log.to_record(ClassicGroup(group.group_id, state_timestamp_ms=context.now_ms))
        )
    return decision.outcome()


def check(request: JoinGroupRequest, context: Context) -> None:
    """What is wrong with it, whatever the group is. Raises `GroupError`."""
    if not request.group_id:
        raise GroupError(Errors.INVALID_GROUP_ID)
    config = context.config
    shortest, longest = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
    if not shortest <= request.session_timeout_ms <= longest:
        raise GroupError(Errors.INVALID_SESSION_TIMEOUT)


def _has_room(group: ClassicGroup, member_id: str, most: int) -> bool:
    if group.state is State.PREPARING_REBALANCE:
        # Those who wait are counted, so that after `group.max.size` shrank the last to rejoin are out.
        member = group.members.get(member_id)
        return (member is not None and member.join_waiter is not None) or group.waiting < most
    if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
        return member_id in group.members or len(group.members) < most
    return True


def _join_new(decision: Decision, request: JoinGroupRequest) -> None:
    group, context = decision.group, decision.context
    instance_id = request.group_instance_id
    stem = instance_id if instance_id is not None else context.client_id
    member_id = f"{stem}-{context.fresh_ids[0]}"
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
            # Ids are handed out to dynamic members only. Kafka did not expect this either.
            raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
        _add(decision, request, request.member_id)
        return
    member = group.check_member(request.member_id, request.group_instance_id)
    changed = member.protocols != _protocols(request)
    leads_stable = group.state is State.STABLE and group.leader == member.member_id
    if group.state is State.PREPARING_REBALANCE:
        _update(decision, request, member)
        decision.rebalance_or_go_on()
    elif group.state is State.EMPTY:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    elif changed or leads_stable:
        leads = group.leader == member.member_id
        decision.cause(_kind(request, member, changed, leads), member, request.reason)
        _update(decision, request, member)
        decision.rebalance_or_go_on()
    else:
        # Its answer was lost, or it only wants to hear the generation again.
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
    decision.rebalance_or_go_on()


def _update(decision: Decision, request: JoinGroupRequest, member: Member) -> None:
    """The member as it comes back, waiting for its answer."""
    if member.join_waiter is not None and member.join_waiter != decision.context.waiter:
        # The same member asks again on another connection; the older question is not left open.
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
    """A static member is back under a new member id: same place, same assignment (KIP-345)."""
    group = decision.group
    fenced = Errors.FENCED_INSTANCE_ID
    decision.answer_join(old, rejected_join(fenced, old.member_id))
    if old.sync_waiter is not None:
        decision.reply(old.sync_waiter, SyncGroupResponse(error_code=fenced))
    new = _take_place(group, group.members[old.member_id], member_id)
    decision.disarm(session_key(group.group_id, old.member_id))
    # The session that began here is the old one's; a new timeout counts from the next heartbeat on.
    decision.arm_session(new)
    changed = old.protocols != _protocols(request)
    if group.state is State.COMPLETING_REBALANCE:
        decision.cause(causes.STATIC_MEMBER_REJOINS, new, request.reason)
        _update(decision, request, new)
        decision.start_rebalance()
        return
    _update(decision, request, new)
    if group.state is not State.STABLE:
        decision.go_on()
    elif group.vote() == group.protocol:
        _keep_generation(decision, group.members[member_id], old.member_id)
    else:
        leads = group.leader == member_id
        decision.cause(_kind(request, old, changed, leads), group.members[member_id], request.reason)
        decision.start_rebalance()


def _take_place(group: ClassicGroup, old: Member, member_id: str) -> Member:
    """Put the member under its new id; it leads if it led, and has yet to sync if it had."""
    led = group.leader == old.member_id
    awaited = old.member_id in group.pending_syncs
    group.drop(old.member_id)
    new = replace(old, member_id=member_id, join_waiter=None, sync_waiter=None)
    group.put(new)
    if led:
        group.leader = member_id
    if awaited:
        group.pending_syncs.add(member_id)
    return new


def _keep_generation(decision: Decision, member: Member, old_member_id: str) -> None:
    """No rebalance: the new id is written down and the member hears the generation that stands.

    What it reads may be something else than before: from here on, as after a restart, that is kept."""
    group = decision.group
    led = group.leader == member.member_id
    group.subscribed = topics_of_generation(group)
    decision.records.append(log.to_record(group))
    if decision.context.api_version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
        response = decision.joined_response(member, skip_assignment=led)
    else:
        # An older client that saw itself lead would compute an assignment: it is shown its old id as leader.
        response = decision.joined_response(member).replace(
            members=(), leader=old_member_id if led else group.leader or ""
        )
    decision.answer_join(member, response)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none of its own: the session's stands for it."""
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((p.name, p.metadata) for p in request.protocols)


# --- what a rejoin is about ----------------------------------------------------------------------

_REASONS = (
    ("need to revoke partitions", causes.COOPERATIVE_FOLLOW_UP),
    ("cached metadata has changed", causes.TOPIC_METADATA_CHANGED),
)
"""Words of the Java client's reasons (KIP-800), and what they mean."""


def _kind(request: JoinGroupRequest, member: Member, changed: bool, leads: bool) -> str:
    """Why a member of a generation asks for another one: by its own words, else by what it sends."""
    for words, kind in _REASONS:
        if words in (request.reason or ""):
            return kind
    if changed:
        before = read_subscription(member.protocols[0][1])
        after = read_subscription(request.protocols[0].metadata)
        if before is None or after is None or before.topics != after.topics:
            return causes.MEMBER_METADATA_CHANGED
        if before.owned - after.owned:
            return causes.COOPERATIVE_FOLLOW_UP
    return causes.LEADER_REJOINED if leads else causes.MEMBER_METADATA_CHANGED
