"""Members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They are Kafka Streams applications before their rolling restart (KIP-1071). To them the group looks like one
whose leader is always another member: a generation is the member's epoch, and a rebalance concerns that
member alone. A heartbeat is answered with REBALANCE_IN_PROGRESS when something changed for the member. Its
JoinGroup reports what it owns and the offsets of its tasks, and reconciles it as a heartbeat reconciles other
members; its SyncGroup returns its assignment, with tasks that have become free since.

    timer        starts with                      stops when the member
    session      each request                     sends another request
    rejoin       REBALANCE_IN_PROGRESS            joins
    resync       the response to its JoinGroup    syncs

A member reports the offsets of its tasks only when it joins. So while members with warm-up tasks report
offsets, exactly one of them is given a time to rejoin on its own: the probing rebalance of Kafka Streams. The
others are sent REBALANCE_IN_PROGRESS when their report is due. The interval is that of the streams protocol,
`streams.task.offset.interval.ms`."""

from __future__ import annotations

from dataclasses import replace

from konvene.errors import Errors
from konvene.groups.classic.decision import rejected_join
from konvene.groups.classic.join import (
    FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
    check,
    rebalance_timeout_ms,
)
from konvene.groups.classic.subscriptions import CONSUMER, STREAM
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import DISABLED, classic_member, leave_members
from konvene.groups.modern.group import CachedHeartbeat, get_or_throw_static_member
from konvene.groups.streams import log
from konvene.groups.streams.assignors import assignment_configs
from konvene.groups.streams.classic import conversion
from konvene.groups.streams.classic.changelog_ends import look_up_ends
from konvene.groups.streams.classic.tasks import (
    SHUTDOWN_REQUESTED,
    JoinMetadata,
    encode_assignment,
    has_numeric_subtopologies,
    new_report,
    owned_tasks,
    read_metadata_or_reject,
    subscribed_topics,
    tasks_with_offsets,
)
from konvene.groups.streams.classic.user_data import NO_REBALANCE_MS
from konvene.groups.streams.current_assignment import MemberState, Target, next_assignment
from konvene.groups.streams.decision import Decision, rejoin_key, resync_key, revocation_key, session_key
from konvene.groups.streams.epoch_bumps import maybe_bump_epoch
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.leave import fence
from konvene.groups.streams.targets import maybe_reconcile, retarget
from konvene.groups.streams.topology.configure import ConfiguredTopology
from konvene.groups.streams.topology.expressions import expressions
from konvene.groups.streams.topology.internal_topics import create_missing_topics
from konvene.groups.streams.topology.resolution import configure_topology
from konvene.groups.streams.topology.topology import Topology
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.join_group import JoinGroupRequest, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

# --- join ------------------------------------------------------------------------------------------


def join(group: StreamsGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    """Record and reconcile a classic member that joins or rejoins a streams group with members.

    Raises `GroupError` for requests that every type of group rejects. The response to other invalid requests
    has no member id, as for consumer groups.
    """
    check(request, context)
    try:
        return _join(group, request, context)
    except GroupError as refused:
        return Outcome((Reply(context.waiter, rejected_join(refused.error)),))


def _join(group: StreamsGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    topology, metadata = _check_join(group, request, context)
    unknown, instance_id = not request.member_id, request.group_instance_id
    member_id = context.fresh_ids[0] if unknown else request.member_id
    wants_id = context.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    if unknown and instance_id is None and wants_id:
        return Outcome((Reply(context.waiter, rejected_join(Errors.MEMBER_ID_REQUIRED, member_id)),))
    decision = Decision(group, context)
    holder = group.static_member(instance_id)
    downgrade = holder is not None and conversion.may_downgrade(decision, [holder], replaced=True)
    replaced = None
    if instance_id is None or (unknown and holder is None):
        old = group.members.get(member_id) or Member(member_id)
    elif unknown:
        assert holder is not None
        old, replaced = decision.replace_static_member(holder, member_id), holder.member_id
    else:
        old = get_or_throw_static_member(group, member_id, instance_id)
    is_new = old.member_id not in group.members and replaced is None
    new = _updated_member(old, request, metadata, topology, context)
    changed = _record_changes(decision, old, new, is_new=is_new)
    configured, is_changed = configure_topology(decision, topology, changed=changed)
    known = decision.reported_by(member_id)
    decision.report(member_id, new_report(metadata, known, old.current.assigned, context.now_ms))
    maybe_bump_epoch(
        decision, new, topology, configured, tasks_with_offsets(metadata), changed=changed or is_changed
    )
    if metadata.info.error_code == SHUTDOWN_REQUESTED and decision.soft.shutdown is None:
        decision.remember(shutdown=member_id)
    settled = new
    if not downgrade or decision.assignment_epoch >= decision.epoch:
        target = retarget(decision, new, configured, replaced, [])
        settled = maybe_reconcile(decision, new, target, owned_tasks(metadata.subscription.owned, topology))
    decision.changed.append(settled)
    # The generation of a group that is downgraded is its epoch; before, it is the member's own epoch.
    decision.reply(context.waiter, _joined(settled, group.epoch if downgrade else settled.current.epoch))
    if downgrade:
        assert holder is not None
        behind = group.behind - {holder.member_id} or decision.soft.configured is None
        rebalance = decision.assignment_epoch < decision.epoch or bool(behind)
        return conversion.downgrade(decision, [holder], settled, rebalance=rebalance)
    _bump_endpoint_epoch(decision, old, settled)
    _wait_for_sync(decision, old, settled)
    look_up_ends(decision, member_id, configured)
    _create_missing_topics(decision, configured)
    return decision.outcome()


def _check_join(
    group: StreamsGroup, request: JoinGroupRequest, context: Context
) -> tuple[Topology, JoinMetadata]:
    """Return the group's topology and the member's metadata. Raises `GroupError` if they do not match."""
    if conversion.policy(context.config) == DISABLED or group.topology is None:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    max_size: int = context.config["group.streams.max.size"]
    known = request.group_instance_id in group.instances or request.member_id in group.members
    if not known and len(group.members) >= max_size:
        raise GroupError(Errors.GROUP_MAX_SIZE_REACHED)
    protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
    if request.protocol_type != CONSUMER or STREAM not in protocols:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    metadata = read_metadata_or_reject(protocols[STREAM])
    is_plain = has_numeric_subtopologies(group.topology) and not expressions(group.topology)
    fits = is_plain and metadata.subscription.topics == subscribed_topics(group.topology)
    if metadata.info.named_topologies or not fits:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    return group.topology, metadata


def _updated_member(
    old: Member, request: JoinGroupRequest, metadata: JoinMetadata, topology: Topology, context: Context
) -> Member:
    """Return the member with the fields of the request, at the group's topology epoch."""
    protocols = tuple((p.name, p.metadata) for p in request.protocols)
    instance_id, rack_id = request.group_instance_id, metadata.subscription.rack_id
    return replace(
        old,
        instance_id=instance_id if instance_id is not None else old.instance_id,
        rack_id=rack_id if rack_id is not None else old.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        topology_epoch=topology.epoch,
        process_id=metadata.info.process_id,
        user_endpoint=metadata.info.endpoint,
        client_tags=metadata.info.client_tags,
        classic=ClassicProtocolMetadata(request.session_timeout_ms, protocols),
    )


def _record_changes(decision: Decision, old: Member, new: Member, *, is_new: bool) -> bool:
    """Record the member if it changed; return whether the group's epoch has to be bumped for that."""
    if new != old:
        decision.record(log.member_record(decision.group.group_id, new))
    if is_new:
        decision.cause(causes.MEMBER_JOINED, new)
        return True
    affects_assignment = (
        (old.topology_epoch, old.rack_id, old.client_tags, old.process_id)
        != (new.topology_epoch, new.rack_id, new.client_tags, new.process_id)
    )  # fmt: skip
    if affects_assignment:
        decision.cause(causes.MEMBER_METADATA_CHANGED, new)
    return affects_assignment


def _bump_endpoint_epoch(decision: Decision, old: Member, new: Member) -> None:
    """Bump the endpoint epoch if the member's endpoint or the tasks at it changed.

    Then all members get the endpoints of all members again.
    """
    is_changed = old.current.assigned != new.current.assigned and new.user_endpoint is not None
    if is_changed or old.user_endpoint != new.user_endpoint:
        decision.remember(endpoint_epoch=decision.soft.endpoint_epoch + 1)


def _wait_for_sync(decision: Decision, old: Member, new: Member) -> None:
    group_id, member_id = decision.group.group_id, new.member_id
    decision.timers.append(Disarm(rejoin_key(group_id, member_id)))
    if old.classic is None:
        decision.timers.append(Disarm(revocation_key(group_id, member_id)))
    decision.arm_session(new)
    decision.arm(resync_key(group_id, member_id), new.rebalance_timeout_ms)


def _create_missing_topics(decision: Decision, configured: ConfiguredTopology | None) -> None:
    """Request the creation of missing internal topics, which in a classic group the leader creates.

    The request is repeated at each request of a classic member, since all members may be classic ones.
    """
    if configured is not None and configured.missing:
        effect = create_missing_topics(decision.group.group_id, configured, decision.context)
        decision.effects.append(effect)


def _joined(member: Member, generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=STREAM,
        member_id=member.member_id,
    )


# --- sync ------------------------------------------------------------------------------------------


def sync(group: StreamsGroup, request: SyncGroupRequest, context: Context) -> Outcome:
    """Return the member's assignment, or REBALANCE_IN_PROGRESS if it has to rejoin. Raises `GroupError`."""
    member: Member = classic_member(group, request)
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, STREAM):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    decision = Decision(group, context)
    configured, state = group.soft.configured, member.current.state
    is_behind = group.assignment_epoch > member.current.epoch and state is not MemberState.UNREVOKED_TASKS
    if is_behind or configured is None or not configured.is_resolved:
        # The member has to rejoin: after its revocation if it owes one, else at once. A coordinator that was
        # just loaded does not know the topics of tasks either, which the join configures.
        _request_rejoin(decision, member)
        decision.reply(context.waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        return decision.outcome()
    settled = member
    if state is MemberState.UNRELEASED_TASKS:
        settled = maybe_reconcile(decision, member, group.target_of(member.member_id), None)
        if settled is not member:
            decision.changed.append(settled)
            _bump_endpoint_epoch(decision, member, settled)
    decision.timers.append(Disarm(resync_key(group.group_id, member.member_id)))
    decision.arm_session(settled)
    known = decision.reported_by(member.member_id)
    if known is not None and settled.user_endpoint is not None:
        decision.report(member.member_id, replace(known, sent_endpoint_epoch=decision.soft.endpoint_epoch))
    assignment = encode_assignment(
        decision, settled, settled.current.assigned.tasks, _next_rebalance_ms(decision, settled)
    )
    decision.reply(
        context.waiter,
        SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        ),
    )
    return decision.outcome()


def _request_rejoin(decision: Decision, member: Member) -> None:
    key = rejoin_key(decision.group.group_id, member.member_id)
    decision.arm(key, member.rebalance_timeout_ms, unless_armed=True)


def _next_rebalance_ms(decision: Decision, member: Member) -> int:
    """Return the time at which the member is to rejoin to report its offsets (a probing rebalance).

    That is `NO_REBALANCE_MS` except for the first of the members that have warm-ups and report offsets.
    """
    group = decision.group
    warming = {name for tasks in group.warmup.values() for owners in tasks.values() for name in owners}
    others = (group.members[name] for name in warming if name != member.member_id)
    if not _is_probing(decision, member) or any(
        other.member_id < member.member_id and _is_probing(decision, other) for other in others
    ):
        return NO_REBALANCE_MS
    return decision.context.now_ms + int(decision.config["streams.task.offset.interval.ms"])


def _is_probing(decision: Decision, member: Member) -> bool:
    """Return whether the member has warm-up tasks and reports their offsets."""
    if member.classic is None or not member.current.assigned.warmup:
        return False
    report = decision.reported_by(member.member_id)
    return report is None or report.reports


# --- heartbeat -------------------------------------------------------------------------------------


def heartbeat(group: StreamsGroup, request: HeartbeatRequest, context: Context) -> Outcome:
    """Restart the member's session; answer REBALANCE_IN_PROGRESS if it has to rejoin. Raises `GroupError`."""
    member: Member = classic_member(group, request)
    decision = Decision(group, context)
    decision.arm_session(member)
    error = Errors.NONE
    if _has_to_rejoin(decision, member):
        error = Errors.REBALANCE_IN_PROGRESS
        _request_rejoin(decision, member)
    decision.reply(context.waiter, HeartbeatResponse(error_code=error))
    if group.classic_members == len(group.members):
        _create_missing_topics(decision, group.soft.configured)
    return decision.outcome()


def _has_to_rejoin(decision: Decision, member: Member) -> bool:
    """Return whether the member has to rejoin.

    That is the case if a shutdown is requested, if it has a new target, has to revoke a task or can get one
    that has become free, if its report of offsets is due, or if the endpoints that it was sent are outdated.
    If all members use the classic protocol, also after a change of topics or configs, since then only a join
    computes a target.
    """
    group, current = decision.group, member.current
    if group.soft.shutdown is not None or current.state is MemberState.UNREVOKED_TASKS:
        return True
    only_classic = group.classic_members == len(group.members)
    if current.epoch < (group.epoch if only_classic else group.assignment_epoch):
        return True
    topics_changed = group.soft.hashed_topics is not decision.context.topics
    if only_classic and (topics_changed or _configs_changed(decision)):
        return True
    if current.state is MemberState.UNRELEASED_TASKS:
        target = Target(
            group.assignment_epoch, group.target_of(member.member_id), member.process_id, group.processes
        )
        is_changed = next_assignment(current, target, None)
        if (is_changed.state, is_changed.assigned) != (current.state, current.assigned):
            return True
    return _report_is_due(decision, member) or _misses_endpoints(decision, member)


def _configs_changed(decision: Decision) -> bool:
    """Return whether the configs that affect assignments differ from those of the last target."""
    return assignment_configs(decision.config, decision.group.topology) != decision.group.assignment_configs


def _misses_endpoints(decision: Decision, member: Member) -> bool:
    """Return whether the member has an endpoint, and the endpoints that it was sent last are outdated."""
    if member.user_endpoint is None:
        return False
    report = decision.reported_by(member.member_id)
    return report is None or report.sent_endpoint_epoch != decision.soft.endpoint_epoch


def _report_is_due(decision: Decision, member: Member) -> bool:
    if not _is_probing(decision, member):
        return False
    report = decision.reported_by(member.member_id)
    interval_ms: int = decision.config["streams.task.offset.interval.ms"]
    return report is None or not 0 <= decision.context.now_ms - report.reported_ms < interval_ms


def cacheable(
    group: StreamsGroup, request: HeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to a repeated heartbeat depends on, and the session timer that it arms.

    None if each heartbeat has to be decided: the member has not reached its target, or has warm-ups and must
    rejoin from time to time, or all members are classic, so that only their heartbeats detect changed topics.
    """
    member = group.members.get(request.member_id)
    if member is None or member.classic is None or request.generation_id != member.current.epoch:
        return None
    if request.group_instance_id not in (None, member.instance_id) or member.current.assigned.warmup:
        return None
    is_settled = group.epoch == group.assignment_epoch and member.is_reconciled_to(group.epoch)
    if not is_settled or group.classic_members == len(group.members):
        return None
    if _has_to_rejoin(Decision(group, context), member):
        return None
    timeout_ms = member.classic.session_timeout_ms
    return CachedHeartbeat(group, member), (Arm(session_key(group.group_id, member.member_id), timeout_ms),)


# --- leave -----------------------------------------------------------------------------------------


def leave(group: StreamsGroup, request: LeaveGroupRequest, context: Context) -> Outcome:
    """Remove the members that a LeaveGroup request names, of either protocol, with one epoch bump."""
    response, departed = leave_members(group, request, context)
    decision = Decision(group, context)
    decision.reply(context.waiter, response)
    return fence(decision, departed)
