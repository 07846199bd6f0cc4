"""Members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They are Kafka Streams applications that were not rolled yet (KIP-1071). To them the group looks like one
whose leader is always somebody else: a generation is the member's epoch, and a rebalance is theirs alone. A
heartbeat answers REBALANCE_IN_PROGRESS when there is something to learn; the member joins again, which says
what it owns and how far its tasks are, and moves it on as a heartbeat moves others; its sync gives it what it
has, and what has become free since.

    timer        runs from                        until it
    session      each request                     speaks again
    rejoin       REBALANCE_IN_PROGRESS            joins
    resync       the answer to its JoinGroup      syncs

How far its tasks are, a member tells when it joins and at no other time. So while some of them warm up tasks,
and say how far they are, exactly one of these is told when to join of its own accord: the probing rebalance
of Kafka Streams. The others hear by their heartbeats that it is time. The interval is that at which members
of the streams protocol tell, `streams.task.offset.interval.ms`.
"""

from __future__ import annotations

from dataclasses import replace

from konvene.errors import Errors
from konvene.groups.classic.decision import join_refused
from konvene.groups.classic.join import (
    FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
    check,
    rebalance_timeout_ms,
)
from konvene.groups.classic.subscriptions import CONSUMER, STREAM
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import DISABLED, classic_member, farewell
from konvene.groups.modern.group import CachedHeartbeat, static_member
from konvene.groups.streams import log
from konvene.groups.streams.assignors import assignment_configs
from konvene.groups.streams.classic import conversion
from konvene.groups.streams.classic.changelog_ends import look_up
from konvene.groups.streams.classic.tasks import (
    SHUTDOWN_REQUESTED,
    Said,
    can_be_told,
    owned_tasks,
    read_or_refuse,
    read_topics,
    reported,
    said_tasks,
    told,
)
from konvene.groups.streams.classic.user_data import NO_REBALANCE_MS
from konvene.groups.streams.current_assignment import MemberState, Target, next_assignment
from konvene.groups.streams.decision import Decision, join_key, revocation_key, session_key, sync_key
from konvene.groups.streams.epoch_bumps import see_basis
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.leave import fence
from konvene.groups.streams.targets import reconcile, retarget
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
    """Decide a JoinGroup to a streams group with members. What this group refuses it refuses without the
    member's id, as consumer groups do. Raises `GroupError` for what any group refuses."""
    check(request, context)
    try:
        return _join(group, request, context)
    except GroupError as refused:
        return Outcome((Reply(context.waiter, join_refused(refused.error)),))


def _join(group: StreamsGroup, request: JoinGroupRequest, context: Context) -> Outcome:
    topology, said = _check_join(group, request, context)
    unknown, instance_id = not request.member_id, request.group_instance_id
    member_id = context.fresh_ids[0] if unknown else request.member_id
    wants_id = context.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    if unknown and instance_id is None and wants_id:
        return Outcome((Reply(context.waiter, join_refused(Errors.MEMBER_ID_REQUIRED, member_id)),))
    step = Decision(group, context)
    holder = group.static_member(instance_id)
    downgrade = holder is not None and conversion.may_downgrade(step, [holder], replaced=True)
    replaced = None
    if instance_id is None or (unknown and holder is None):
        old = group.members.get(member_id) or Member(member_id)
    elif unknown:
        assert holder is not None
        old, replaced = step.take_place(holder, member_id), holder.member_id
    else:
        old = static_member(group, member_id, instance_id)
    is_new = old.member_id not in group.members and replaced is None
    new = _updated(old, request, said, topology, context)
    changed = _describe_itself(step, old, new, is_new=is_new)
    configured, moved = configure_topology(step, topology, changed=changed)
    known = step.reported_by(member_id)
    step.report(member_id, reported(said, known, old.current.assigned, context.now_ms))
    see_basis(step, new, topology, configured, said_tasks(said), changed=changed or moved)
    if said.info.error_code == SHUTDOWN_REQUESTED and step.soft.shutdown is None:
        step.remember(shutdown=member_id)
    settled = new
    if not downgrade or step.assignment_epoch >= step.epoch:
        target = retarget(step, new, configured, replaced, [])
        settled = reconcile(step, new, target, owned_tasks(said.subscription.owned, topology))
    step.arrived.append(settled)
    # The generation of a group that goes back is its epoch; a member's own, until then.
    step.reply(context.waiter, _joined(settled, group.epoch if downgrade else settled.current.epoch))
    if downgrade:
        assert holder is not None
        behind = group.behind - {holder.member_id} or step.soft.configured is None
        rebalance = step.assignment_epoch < step.epoch or bool(behind)
        return conversion.downgraded(step, [holder], settled, rebalance=rebalance)
    _see_endpoint(step, old, settled)
    _wait_for_sync(step, old, settled)
    look_up(step, member_id, configured)
    _have_topics_made(step, configured)
    return step.outcome()


def _check_join(group: StreamsGroup, request: JoinGroupRequest, context: Context) -> tuple[Topology, Said]:
    """The topology of the group, and what the member says: it must run the same, as far as it tells."""
    if conversion.policy(context.config) == DISABLED or group.topology is None:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    most: int = context.config["group.streams.max.size"]
    known = request.group_instance_id in group.instances or request.member_id in group.members
    if not known and len(group.members) >= most:
        raise GroupError(Errors.GROUP_MAX_SIZE_REACHED)
    metadata = {protocol.name: protocol.metadata for protocol in request.protocols}
    if request.protocol_type != CONSUMER or STREAM not in metadata:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    said = read_or_refuse(metadata[STREAM])
    is_plain = can_be_told(group.topology) and not expressions(group.topology)
    fits = is_plain and said.subscription.topics == read_topics(group.topology)
    if said.info.named_topologies or not fits:
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    return group.topology, said


def _updated(
    old: Member, request: JoinGroupRequest, said: Said, topology: Topology, context: Context
) -> Member:
    """The member with what it says of itself now. It runs the topology that the group has."""
    protocols = tuple((p.name, p.metadata) for p in request.protocols)
    instance_id, rack_id = request.group_instance_id, said.subscription.rack_id
    return replace(
        old,
        instance_id=instance_id if instance_id is not None else old.instance_id,
        rack_id=rack_id if rack_id is not None else old.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        topology_epoch=topology.epoch,
        process_id=said.info.process_id,
        user_endpoint=said.info.endpoint,
        client_tags=said.info.client_tags,
        classic=ClassicProtocolMetadata(request.session_timeout_ms, protocols),
    )


def _describe_itself(step: Decision, old: Member, new: Member, *, is_new: bool) -> bool:
    """Write down what the member said; whether the epoch has to move for it."""
    if new != old:
        step.record(log.member_record(step.group.group_id, new))
    if is_new:
        step.cause(causes.MEMBER_JOINED, new)
        return True
    rests_on = (
        (old.topology_epoch, old.rack_id, old.client_tags, old.process_id)
        != (new.topology_epoch, new.rack_id, new.client_tags, new.process_id)
    )  # fmt: skip
    if rests_on:
        step.cause(causes.MEMBER_METADATA_CHANGED, new)
    return rests_on


def _see_endpoint(step: Decision, old: Member, new: Member) -> None:
    """Others are told anew where tasks are, if some of an endpoint have moved."""
    moved = old.current.assigned != new.current.assigned and new.user_endpoint is not None
    if moved or old.user_endpoint != new.user_endpoint:
        step.remember(endpoint_epoch=step.soft.endpoint_epoch + 1)


def _wait_for_sync(step: Decision, old: Member, new: Member) -> None:
    group_id, member_id = step.group.group_id, new.member_id
    step.timers.append(Disarm(join_key(group_id, member_id)))
    if old.classic is None:
        step.timers.append(Disarm(revocation_key(group_id, member_id)))
    step.arm_session(new)
    step.arm(sync_key(group_id, member_id), new.rebalance_timeout_ms)


def _have_topics_made(step: Decision, configured: ConfiguredTopology | None) -> None:
    """Somebody has to ask for what is missing again and again, also where nobody speaks the streams protocol:
    no member of the classic one leads here, and makes its topics by itself."""
    if configured is not None and configured.missing:
        step.effects.append(create_missing_topics(step.group.group_id, configured))


def _joined(member: Member, generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=STREAM,
        member_id=member.member_id,
    )


# --- sync ------------------------------------------------------------------------------------------


def sync(group: StreamsGroup, request: SyncGroupRequest, context: Context) -> Outcome:
    """Decide a SyncGroup: the member hears what it has. Raises `GroupError`."""
    member: Member = classic_member(group, request)
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, STREAM):
        raise GroupError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    step = Decision(group, context)
    configured, state = group.soft.configured, member.current.state
    is_behind = group.assignment_epoch > member.current.epoch and state is not MemberState.UNREVOKED_TASKS
    if is_behind or configured is None or not configured.is_resolved:
        # It is to join once more: who owes a revocation when it has revoked, all others at once. What tasks
        # read is not known either by a coordinator that has just begun, and the join finds out.
        _ask_to_join(step, member)
        step.reply(context.waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
        return step.outcome()
    settled = member
    if state is MemberState.UNRELEASED_TASKS:
        settled = reconcile(step, member, group.target_of(member.member_id), None)
        if settled is not member:
            step.arrived.append(settled)
            _see_endpoint(step, member, settled)
    step.timers.append(Disarm(sync_key(group.group_id, member.member_id)))
    step.arm_session(settled)
    known = step.reported_by(member.member_id)
    if known is not None and settled.user_endpoint is not None:
        step.report(member.member_id, replace(known, knows_endpoints=step.soft.endpoint_epoch))
    assignment = told(step, settled, settled.current.assigned.tasks, _next_rebalance_ms(step, settled))
    step.reply(
        context.waiter,
        SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        ),
    )
    return step.outcome()


def _ask_to_join(step: Decision, member: Member) -> None:
    key = join_key(step.group.group_id, member.member_id)
    step.arm(key, member.rebalance_timeout_ms, unless_armed=True)


def _next_rebalance_ms(step: Decision, member: Member) -> int:
    """When the member is to join of its own accord: one of those who warm something up and say how far."""
    group = step.group
    warm = {name for there in group.warmup.values() for some in there.values() for name in some}
    others = (group.members[name] for name in warm if name != member.member_id)
    if not _probes(step, member) or any(
        other.member_id < member.member_id and _probes(step, other) for other in others
    ):
        return NO_REBALANCE_MS
    return step.context.now_ms + int(step.config["streams.task.offset.interval.ms"])


def _probes(step: Decision, member: Member) -> bool:
    """Whether it is to be heard of how far a member is with what it warms up."""
    if member.classic is None or not member.current.assigned.warmup:
        return False
    said = step.reported_by(member.member_id)
    return said is None or said.reports


# --- heartbeat -------------------------------------------------------------------------------------


def heartbeat(group: StreamsGroup, request: HeartbeatRequest, context: Context) -> Outcome:
    """Decide a Heartbeat of the classic protocol. Raises `GroupError`."""
    member: Member = classic_member(group, request)
    step = Decision(group, context)
    step.arm_session(member)
    error = Errors.NONE
    if _has_to_rejoin(step, member):
        error = Errors.REBALANCE_IN_PROGRESS
        _ask_to_join(step, member)
    step.reply(context.waiter, HeartbeatResponse(error_code=error))
    if group.classic_members == len(group.members):
        _have_topics_made(step, group.soft.configured)
    return step.outcome()


def _has_to_rejoin(step: Decision, member: Member) -> bool:
    """Whether there is a new target, or something to revoke, or something has become free, or it is time to
    hear how far the member is, or to tell it where others have their state.

    Where members of the classic protocol are alone, a join is all that a target can be computed for, and all
    that can see that topics or settings have changed."""
    group, current = step.group, member.current
    if group.soft.shutdown is not None or current.state is MemberState.UNREVOKED_TASKS:
        return True
    alone = group.classic_members == len(group.members)
    if current.epoch < (group.epoch if alone else group.assignment_epoch):
        return True
    if alone and (group.soft.seen is not step.context.topics or _has_other_settings(step)):
        return True
    if current.state is MemberState.UNRELEASED_TASKS:
        target = Target(
            group.assignment_epoch, group.target_of(member.member_id), member.process_id, group.processes
        )
        moved = next_assignment(current, target, None)
        if (moved.state, moved.assigned) != (current.state, current.assigned):
            return True
    return _is_time_to_tell(step, member) or _misses_endpoints(step, member)


def _has_other_settings(step: Decision) -> bool:
    """Whether the settings on which targets rest are not those of the last one."""
    return assignment_configs(step.config, step.group.topology) != step.group.assignment_configs


def _misses_endpoints(step: Decision, member: Member) -> bool:
    """Whether a member that can be asked about its state does not know where all other state is."""
    if member.user_endpoint is None:
        return False
    said = step.reported_by(member.member_id)
    return said is None or said.knows_endpoints != step.soft.endpoint_epoch


def _is_time_to_tell(step: Decision, member: Member) -> bool:
    if not _probes(step, member):
        return False
    said = step.reported_by(member.member_id)
    interval_ms: int = step.config["streams.task.offset.interval.ms"]
    return said is None or not said.reported_ms <= step.context.now_ms < said.reported_ms + interval_ms


def cacheable(
    group: StreamsGroup, request: HeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """For a heartbeat that was accepted, of a member that has what it is meant to have. Not where it is to
    join when it is time, or where nobody else would see that topics have changed."""
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
    """Decide a LeaveGroup, of members of either protocol. However many go, the epoch moves once."""
    answer, gone = farewell(group, request, context)
    step = Decision(group, context)
    step.reply(context.waiter, answer)
    return fence(step, gone)
