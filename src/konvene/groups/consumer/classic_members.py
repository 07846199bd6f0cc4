"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

No such member is the leader. A member's generation is its epoch, and it rebalances alone: its Heartbeat fails
with REBALANCE_IN_PROGRESS when its assignment has to change; its JoinGroup reports what it owns and
reconciles it, as a heartbeat does for other members; its SyncGroup returns its assignment. Eager members own
nothing when they join; cooperative ones join once more after they have revoked.

    timer        runs from                        until the member
    session      each request                     sends the next one
    rejoin       REBALANCE_IN_PROGRESS            sends a JoinGroup
    resync       the response to its JoinGroup    sends a SyncGroup
"""

from __future__ import annotations

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.decision import rejected_join
from konvene.groups.classic.join import (
    FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
    check,
    rebalance_timeout_ms,
)
from konvene.groups.classic.subscriptions import CONSUMER, Subscription, read_subscription, write_assignment
from konvene.groups.consumer import conversion, log
from konvene.groups.consumer.current_assignment import NO_OWNER, CurrentAssignment, MemberState, Partitions
from konvene.groups.consumer.decision import Decision, rejoin_key, resync_key, revocation_key
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.leave import fence
from konvene.groups.consumer.subscriptions import maybe_bump_epoch, update_regex
from konvene.groups.consumer.targets import maybe_reconcile, retarget
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import DISABLED, classic_member, leave_members
from konvene.groups.modern.group import get_or_throw_static_member
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.shard import causes
from konvene.shard.contract import Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

# --- join ------------------------------------------------------------------------------------------


def join(group: ConsumerGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    """Admit or update the classic member that sends a JoinGroup, and reconcile its assignment.

    The group must have members. Errors that only consumer groups have are returned in a response without
    member id, as in Kafka; those of any group are raised as `GroupError`."""
    check(request, context)
    try:
        return _join(group, request, context)
    except GroupError as refused:
        return Outcome((Reply(context.waiter, rejected_join(refused.error)),))


def _join(group: ConsumerGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    _check_join(group, request, context)
    has_no_id = not request.member_id
    member_id = context.fresh_ids[0] if has_no_id else request.member_id
    instance_id = request.group_instance_id
    needs_id = context.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    if has_no_id and instance_id is None and needs_id:
        return Outcome((Reply(context.waiter, rejected_join(Errors.MEMBER_ID_REQUIRED, member_id)),))
    decision = Decision(group, context)
    holder = group.static_member(instance_id)
    replaced = None
    downgrade = holder is not None and conversion.may_downgrade(group, [holder], context, replaced=True)
    if instance_id is None:
        old = group.members.get(member_id) or Member(member_id)
    elif not has_no_id:
        old = get_or_throw_static_member(group, member_id, instance_id)
    elif holder is None:
        old = Member(member_id)
    else:
        old, replaced = decision.replace_static_member(holder, member_id), holder.member_id
    subscription = read_subscription(request.protocols[0].metadata)
    if subscription is None:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    new = _updated(old, request, subscription, context)
    is_new = old.member_id not in group.members and replaced is None
    changed = _subscribe(decision, old, new, is_new=is_new)
    owned = _owned(subscription, context.topics)
    if downgrade:
        assert holder is not None
        return _downgrade(decision, holder, new, owned, changed=changed)
    target = retarget(decision, old, new, replaced=replaced)
    settled = maybe_reconcile(decision, new, target, owned, subscription_changed=changed)
    decision.changed.append(settled)
    decision.timers.append(Disarm(rejoin_key(group.group_id, member_id)))
    if old.classic is None:
        decision.timers.append(Disarm(revocation_key(group.group_id, old.member_id)))
    decision.arm_session(settled)
    decision.arm(resync_key(group.group_id, member_id), rebalance_timeout_ms(request))
    decision.reply(context.waiter, _joined(settled))
    return decision.outcome()


def _check_join(group: ConsumerGroup, request: JoinGroupRequest, context: Context) -> None:
    if _is_migration_disabled(context):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    max_size: int = context.config["group.consumer.max.size"]
    known = request.group_instance_id in group.instances or request.member_id in group.members
    if not known and len(group.members) >= max_size:
        raise GroupError(Errors.GROUP_MAX_SIZE_REACHED)
    supported = any(
        group.classic_protocols.get(protocol.name, 0) == group.classic_members
        for protocol in request.protocols
    )
    if request.protocol_type != CONSUMER or not supported:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)


def _is_migration_disabled(context: Context) -> bool:
    """Return whether the migration policy forbids to join or rejoin with the classic protocol."""
    return str(context.config["group.consumer.migration.policy"]).lower() == DISABLED


def _updated(old: Member, request: JoinGroupRequest, subscription: Subscription, context: Context) -> Member:
    protocols = tuple((p.name, p.metadata) for p in request.protocols)
    return Member(
        old.member_id,
        request.group_instance_id if request.group_instance_id is not None else old.instance_id,
        subscription.rack_id if subscription.rack_id is not None else old.rack_id,
        context.client_id,
        context.client_host,
        rebalance_timeout_ms(request),
        subscription.topics,
        "",
        old.assignor,
        ClassicProtocolMetadata(request.session_timeout_ms, protocols),
        old.current,
    )


def _subscribe(decision: Decision, old: Member, new: Member, *, is_new: bool) -> bool:
    """Write the record of a changed member, and bump the epoch if its subscription changed.

    `old`, `new`: the member before and after the request; `is_new`: it joins the group now. Return whether
    the topic names or the expression changed."""
    names_changed = old.topics != new.topics
    if new != old:
        decision.record(log.member_record(decision.group.group_id, new))
    regex_changed, _ = update_regex(decision, old, new)
    changed = names_changed or regex_changed
    if is_new:
        decision.cause(causes.MEMBER_JOINED, new)
    elif changed:
        decision.cause(causes.SUBSCRIPTION_CHANGED, new)
    maybe_bump_epoch(decision, old, new, bump=changed)
    return changed


def _owned(subscription: Subscription, topics: Topics) -> Partitions:
    owned: dict[Uuid, tuple[int, ...]] = {}
    for name, partition in sorted(subscription.owned):
        topic = topics.by_name.get(name)
        if topic is not None:
            owned[topic.id] = (*owned.get(topic.id, ()), partition)
    return owned


def _downgrade(
    decision: Decision, holder: Member, member: Member, owned: Partitions, *, changed: bool
) -> Outcome:
    """Downgrade the group: its last member of the consumer protocol rejoined with the classic one.

    `holder`: that member as it was before; `member`: the member that replaces it; `owned`: the partitions
    that it reports; `changed`: whether its subscription changed."""
    group = decision.group
    rebalance = decision.assignment_epoch < decision.epoch
    if not rebalance:
        target = group.targets.get(holder.member_id, {})
        member = maybe_reconcile(decision, member, target, owned, subscription_changed=changed)
    decision.reply(decision.context.waiter, _joined(member))
    return conversion.downgrade(decision, [holder], member, rebalance=rebalance)


def _joined(member: Member) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.current.epoch,
        protocol_type=CONSUMER,
        protocol_name=member.classic.protocols[0][0],
        member_id=member.member_id,
    )


# --- sync, heartbeat -------------------------------------------------------------------------------


def sync(group: ConsumerGroup, request: SyncGroupRequest, context: Context) -> Outcome:
    """Return a classic member's assignment as the response to its SyncGroup. Raises `GroupError`.

    If there is a newer target, the response is REBALANCE_IN_PROGRESS, and the member has to rejoin."""
    if group.is_empty:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    member = classic_member(group, request)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    decision = Decision(group, context)
    state = member.current.state
    if group.assignment_epoch > member.current.epoch and state is not MemberState.UNREVOKED_PARTITIONS:
        # A member that owes a revocation rejoins after it; every other member has to rejoin at once.
        decision.arm(
            rejoin_key(group.group_id, member.member_id), member.rebalance_timeout_ms, unless_armed=True
        )
        decision.reply(context.waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        return decision.outcome()
    decision.timers.append(Disarm(resync_key(group.group_id, member.member_id)))
    decision.arm_session(member)
    decision.reply(
        context.waiter,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(
                conversion.by_name({t: tuple(p) for t, p in member.current.assigned.items()}, context.topics),
                metadata,
            ),
        ),
    )
    return decision.outcome()


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, context: Context) -> Outcome:
    """Extend the session of a classic member. Raises `GroupError`.

    If the member has to rejoin, the response is REBALANCE_IN_PROGRESS, and the timer of its rejoin starts."""
    member = classic_member(group, request)
    decision = Decision(group, context)
    decision.arm_session(member)
    if _has_only_classic_members(group) and not _is_migration_disabled(context):
        maybe_bump_epoch(decision, member, member, bump=False)
    error = Errors.NONE
    if _has_to_rejoin(decision, member):
        error = Errors.REBALANCE_IN_PROGRESS
        decision.arm(
            rejoin_key(group.group_id, member.member_id), member.rebalance_timeout_ms, unless_armed=True
        )
    decision.reply(context.waiter, HeartbeatResponse(error_code=error))
    return decision.outcome()


def _has_only_classic_members(group: ConsumerGroup) -> bool:
    """Return whether all members use the classic protocol, as in a group whose downgrade is disabled."""
    return group.classic_members == len(group.members)


def _has_to_rejoin(decision: Decision, member: Member) -> bool:
    """Return whether the member must rejoin: for a newer target, to revoke partitions, or because all
    partitions that it waits for are free now.

    If all members are classic, a newer group epoch is enough, because the target of that epoch is computed
    only at a JoinGroup. Kafka 4.4 requires the target here too: members wait until one happens to join."""
    group, current = decision.group, member.current
    if (
        current.epoch < (decision.epoch if _has_only_classic_members(group) else group.assignment_epoch)
        or current.state is MemberState.UNREVOKED_PARTITIONS
    ):
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_partitions(
        group, member, current
    )


def _waits_for_partitions(group: ConsumerGroup, member: Member, current: CurrentAssignment) -> bool:
    return any(
        partition not in current.assigned.get(topic, ()) and group.owner_epoch(topic, partition) != NO_OWNER
        for topic, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


# --- leave -----------------------------------------------------------------------------------------


def leave(group: ConsumerGroup, request: LeaveGroupRequest, context: Context) -> Outcome:
    """Remove the members of either protocol that a LeaveGroup names, with a single epoch bump."""
    response, departures = leave_members(group, request, context)
    decision = Decision(group, context)
    decision.reply(context.waiter, response)
    return fence(decision, departures)
