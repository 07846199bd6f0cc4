"""StreamsGroupHeartbeat: a member joins, stays, reports what it runs, or leaves (KIP-1071).

    epoch   means                                            needs
     0      it joins, or comes back after it was fenced      rebalance timeout, its topology, to own nothing
    >0      it is at this epoch                              to be known
    -1      it leaves                                        to be known
    -2      a static member leaves for a while               an instance id

The steps are those of consumer groups, with the topology between: admit, describe oneself, see the topology
and its topics, retarget, reconcile, answer.

The first member says what the topology is; whoever joins later has to say the same, or to be behind. The
topology is held against the topics there are: where they are missing or do not fit, members are told so
(`status`), own nothing and keep on asking, and internal topics are made for them (`work`).

What a member says of its tasks' offsets is kept beside the log, and so are who asked for a shutdown and which
tasks are at which endpoint: a coordinator that starts anew asks for nothing, and is told again.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.admit import admit
from konvene.groups.modern.group import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    CachedHeartbeat,
    check_size,
    fenced_member_epoch,
    is_waiting,
)
from konvene.groups.streams import log
from konvene.groups.streams.assignors import TAGS
from konvene.groups.streams.classic import conversion
from konvene.groups.streams.current_assignment import CurrentAssignment, Epochs, units
from konvene.groups.streams.decision import Decision, delay_key, session_key
from konvene.groups.streams.endpoints import told_endpoints
from konvene.groups.streams.epoch_bumps import maybe_bump_epoch
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.leave import leave
from konvene.groups.streams.targets import expressions_wait, keeps_target, maybe_reconcile, retarget
from konvene.groups.streams.topology import descriptions
from konvene.groups.streams.topology.changes import changes
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, Status
from konvene.groups.streams.topology.expressions import validate_expressions as check_expressions
from konvene.groups.streams.topology.internal_topics import create_missing_topics, missing_detail
from konvene.groups.streams.topology.resolution import configure_topology
from konvene.groups.streams.topology.topology import Topology, record_value
from konvene.groups.streams.validate import check_request, check_tasks, topology_after
from konvene.groups.streams.warmups import has_news, take_offsets, told_tasks
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

FIRST_VERSION_WITH_MISSING_TAGS = 1
INT_MAX = 2**31 - 1

Groups = MutableMapping[str, Any]


def heartbeat(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """Decide a StreamsGroupHeartbeat. A refusal is answered with Kafka's words, and leaves no trace."""
    try:
        check_request(request, context.config["konvene.streams.mode"])
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            return leave(groups, request, context)
        return _stay(groups, request, context)
    except GroupError as refused:
        response = StreamsGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
        return Outcome((Reply(context.waiter, response),))


def _stay(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """A heartbeat that is no farewell."""
    decision = _group(groups, request, context)
    group = decision.group
    is_known = groups.get(group.group_id) is group
    if request.member_epoch == JOIN:
        most: int = context.config["group.streams.max.size"]
        check_size(group, most, request.member_id, request.instance_id)
    owned = _owned(request)
    old, replaced = admit(
        decision,
        request.member_id,
        request.instance_id,
        request.member_epoch,
        lambda member: _check_epoch(member, request.member_epoch, owned),
        Member,
        may_resume=context.config["konvene.streams.mode"] == KIP,
    )
    new = _updated(old, request, context)
    if group.members and not is_known:
        decision.cause(causes.UPGRADED, new)
    is_new = old.member_id not in group.members and replaced is None
    changed = _describe_itself(decision, old, new, request, is_new=is_new)
    told: list[wire.Status] = []
    configured = _see_topology(decision, new, request, told, changed=changed)
    if group.is_empty and (delay_ms := decision.config["streams.initial.rebalance.delay.ms"]) > 0:
        decision.arm(delay_key(group.group_id), delay_ms, unless_armed=True)
        decision.remember(delayed=True)
    target = retarget(decision, new, configured, replaced, told)
    settled = maybe_reconcile(decision, new, target, owned)
    if settled is not old or replaced is not None:
        decision.changed.append(settled)
    if old.classic is not None:
        decision.disarm_classic(old.member_id)
    decision.arm_session(settled)
    if request.shutdown_application and decision.soft.shutdown is None:
        decision.remember(shutdown=settled.member_id)
    _tell_of_topics(decision, configured, told)
    _tell_of_others(decision, request, settled, told)
    answer = _answer(decision, request, owned, old, settled, replaced, configured, is_known=is_known)
    describe = descriptions.request_description(decision, settled.topology_epoch, request.member_epoch)
    decision.reply(context.waiter, answer.replace(status=tuple(told), topology_description_required=describe))
    return decision.outcome()


# --- admit -----------------------------------------------------------------------------------------


def _group(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision:
    """The group, made or converted where somebody joins it; an empty classic one gives way."""
    group_id, joins = request.group_id, request.member_epoch == JOIN
    known = groups.get(group_id)
    if isinstance(known, StreamsGroup):
        return Decision(known, context)
    if known is None:
        if not joins:
            raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return Decision(StreamsGroup(group_id), context)
    if joins and isinstance(known, ClassicGroup) and known.state is ClassicState.EMPTY:
        decision = Decision(StreamsGroup(group_id), context)
        decision.replace_classic_group(known)
        return decision
    if joins and isinstance(known, ClassicGroup) and context.config["konvene.streams.mode"] == KIP:
        return conversion.upgrade(known, request, context)
    raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def _check_epoch(member: Member, epoch: int, owned: MemberAssignment | None) -> None:
    """Whether the member may be at this epoch. With 0 it comes back, and it may always."""
    current = member.current
    if epoch in (JOIN, current.epoch):
        return
    if epoch == current.previous_epoch < current.epoch and _is_subset(owned, current):
        return
    raise fenced_member_epoch("streams", epoch, current.epoch)


def _is_subset(owned: MemberAssignment | None, current: CurrentAssignment) -> bool:
    if owned is None:
        return False
    has = current.assigned
    return all(
        partition in there.get(subtopology, ())
        for tasks, there in (
            (owned.active, has.active),
            (owned.standby, has.standby),
            (owned.warmup, has.warmup),
        )
        for subtopology, partitions in tasks.items()
        for partition in partitions
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> MemberAssignment | None:
    told = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if told[0] is None or told[1] is None or told[2] is None:
        return None
    return MemberAssignment(*(_by_subtopology(role or ()) for role in told))


def _by_subtopology(told: tuple[TaskIds, ...]) -> Tasks:
    found: dict[str, tuple[int, ...]] = {}
    for each in told:
        found[each.subtopology_id] = found.get(each.subtopology_id, ()) + each.partitions
    return found


# --- describe oneself ------------------------------------------------------------------------------


def _updated(old: Member, request: StreamsGroupHeartbeatRequest, context: Context) -> Member:
    """The member with what it says of itself now; what it does not say is as it was, but for its endpoint:
    who joins without one has none."""
    endpoint, tags = request.user_endpoint, request.client_tags
    if tags is not None and len({tag.key for tag in tags}) < len(tags):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)  # As Kafka, which cannot make a map of them.
    told = None if endpoint is None else (endpoint.host, endpoint.port)
    new = replace(
        old,
        instance_id=request.instance_id if request.instance_id is not None else old.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else old.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else old.rebalance_timeout_ms
        ),
        topology_epoch=request.topology.epoch if request.topology is not None else old.topology_epoch,
        process_id=request.process_id if request.process_id is not None else old.process_id,
        user_endpoint=told if told is not None or request.member_epoch == JOIN else old.user_endpoint,
        client_tags=(
            tuple(sorted((tag.key, tag.value) for tag in tags)) if tags is not None else old.client_tags
        ),
        classic=None,
    )
    return old if new == old else new


def _describe_itself(
    decision: Decision, old: Member, new: Member, request: StreamsGroupHeartbeatRequest, *, is_new: bool
) -> bool:
    """Write down what the member said; whether the epoch has to move for it.

    Of a static member only what targets rest on counts."""
    if new is old:
        return False
    decision.record(log.member_record(decision.group.group_id, new))
    rests_on = (
        (old.topology_epoch, old.rack_id, old.client_tags, old.process_id)
        != (new.topology_epoch, new.rack_id, new.client_tags, new.process_id)
    )  # fmt: skip
    if request.instance_id is not None and not rests_on:
        return False
    decision.cause(causes.MEMBER_JOINED if is_new else causes.MEMBER_METADATA_CHANGED, new)
    return True


# --- see the topology ------------------------------------------------------------------------------


def _see_topology(
    decision: Decision,
    new: Member,
    request: StreamsGroupHeartbeatRequest,
    told: list[wire.Status],
    *,
    changed: bool,
) -> ConfiguredTopology:
    """The topology held against its topics, anew if one of them is not what it was.

    Moves the epoch, at most once, if this or anything else (`changed`) did that targets rest on."""
    group, context = decision.group, decision.context
    mode = context.config["konvene.streams.mode"]
    if request.topology is not None:
        decision.topology = topology_after(group.topology, request.topology, mode)
        if decision.topology is not group.topology:
            check_expressions(decision.topology, group.topology)
            _check_classic(group, decision.topology)
            decision.record(log.topology_record(group.group_id, record_value(request.topology)))
            if group.topology is None:
                decision.cause(causes.TOPOLOGY_INITIALIZED, new)
            else:
                decision.cause(
                    causes.TOPOLOGY_UPDATED, new, reason=changes(group.topology, decision.topology)
                )
    topology = decision.topology
    if topology is None:  # It was not in the log: who joins brings it again.
        raise GroupError(
            Errors.FENCED_MEMBER_EPOCH,
            "The streams group has no topology. The member must abandon all its partitions and rejoin.",
        )
    if new.topology_epoch < topology.epoch and group.topology is not None:
        detail = (
            f"The member's topology epoch {new.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}."
        )
        told.append(wire.Status(status_code=Status.STALE_TOPOLOGY, status_detail=detail))
    configured, moved = configure_topology(decision, topology, changed=changed)
    changed |= moved
    if mode != KIP or new.topology_epoch == topology.epoch:  # Else its tasks are those of another topology.
        check_tasks(request, topology, configured, mode)
    take_offsets(decision, new.member_id, request)
    maybe_bump_epoch(decision, new, topology, configured, told_tasks(request), changed=changed)
    return configured


def _check_classic(group: StreamsGroup, topology: Topology) -> None:
    """Whether members of the classic protocol stand in the way of another topology: they cannot be told."""
    if group.topology is not None and group.classic_members:
        raise GroupError(
            Errors.STREAMS_INVALID_TOPOLOGY_EPOCH,
            f"Topology epoch {topology.epoch} cannot replace the group's {group.topology.epoch} while "
            f"{group.classic_members} of its members speak the classic protocol. Roll them first.",
        )


# --- answer ----------------------------------------------------------------------------------------


def _tell_of_topics(decision: Decision, configured: ConfiguredTopology, told: list[wire.Status]) -> None:
    """What stands in the way, and work for somebody to make the topics that are missing."""
    if not configured.is_resolved and not keeps_target(decision):
        is_told = any(each.status_code == Status.ASSIGNMENT_DELAYED for each in told)
        told += () if is_told else (expressions_wait(),)
    if configured.failure is None:
        return
    status, detail = configured.failure
    if configured.missing:
        decision.effects.append(create_missing_topics(decision.group.group_id, configured))
        detail += missing_detail(decision.soft.creation, configured, decision.context.now_ms)
    told.append(wire.Status(status_code=status, status_detail=detail))


def _tell_of_others(
    decision: Decision, request: StreamsGroupHeartbeatRequest, member: Member, told: list[wire.Status]
) -> None:
    if decision.soft.shutdown is not None:
        detail = (
            f"Streams group member {decision.soft.shutdown} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        told.append(wire.Status(status_code=Status.SHUTDOWN_APPLICATION, status_detail=detail))
    wanted = [tag.strip() for tag in decision.assignment_configs.get(TAGS, "").split(",") if tag.strip()]
    has = dict(member.client_tags)
    missing = [tag for tag in wanted if tag not in has]
    if missing and decision.context.api_version >= FIRST_VERSION_WITH_MISSING_TAGS:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config."
        )
        told.append(wire.Status(status_code=Status.MISSING_CLIENT_TAGS, status_detail=detail))


def _answer(
    decision: Decision,
    request: StreamsGroupHeartbeatRequest,
    owned: MemberAssignment | None,
    old: Member,
    new: Member,
    replaced: str | None,
    configured: ConfiguredTopology,
    *,
    is_known: bool,
) -> StreamsGroupHeartbeatResponse:
    """`is_known`: the group was there before; who makes it hears of no endpoint epoch, as in Kafka."""
    has = new.current.assigned
    moved = has != old.current.assigned
    tells = request.member_epoch == JOIN or moved or _lost_an_answer(request, owned, old)
    endpoint_epoch = decision.soft.endpoint_epoch
    if old.user_endpoint != new.user_endpoint or (moved and new.user_endpoint is not None):
        endpoint_epoch += 1
        if is_known:
            decision.remember(endpoint_epoch=endpoint_epoch)
    endpoints = None
    if endpoint_epoch != request.endpoint_information_epoch:
        endpoints = told_endpoints(decision, new, replaced, configured)
    lag: int = decision.config["streams.acceptable.recovery.lag"]
    return StreamsGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.current.epoch,
        heartbeat_interval_ms=_interval_ms(decision, new, configured),
        acceptable_recovery_lag_legacy=min(lag, INT_MAX) if _is_told_before_1(decision.context) else 0,
        task_offset_interval_ms=decision.config["streams.task.offset.interval.ms"],
        acceptable_recovery_lag=lag,
        active_tasks=_told(has.active) if tells else None,
        standby_tasks=_told(has.standby) if tells else None,
        warmup_tasks=_told(has.warmup) if tells else None,
        endpoint_information_epoch=endpoint_epoch if is_known else 0,
        partitions_by_user_endpoint=endpoints,
    )


def _is_told_before_1(context: Context) -> bool:
    """Whether who speaks version 0 hears of the acceptable lag: of Kafka it hears 0."""
    return context.api_version == 0 and bool(context.config["konvene.streams.mode"] == KIP)


def _lost_an_answer(
    request: StreamsGroupHeartbeatRequest, owned: MemberAssignment | None, old: Member
) -> bool:
    """Whether the member may not know its tasks: it is behind, says all anew, or says that it has others.

    What it waits for it may have been given at its own epoch, and there it is told to give something up."""
    if owned is not None:
        says = units(owned.active, owned.standby, owned.warmup)
        if request.rebalance_timeout_ms != -1 or says != old.current.assigned.units():
            return True
    return JOIN < request.member_epoch < old.current.epoch


def _interval_ms(decision: Decision, member: Member, configured: ConfiguredTopology) -> int:
    """After how long the member is to be heard of again.

    Java's client ends its application where a source topic is missing for twice this time, so then nobody is
    told less than is configured."""
    configured_ms: int = decision.config["streams.heartbeat.interval.ms"]
    if configured.failure is not None and configured.failure[0] is Status.MISSING_SOURCE_TOPICS:
        return configured_ms
    waits = is_waiting(member, decision.epoch, decision.assignment_epoch) or not configured.is_ready
    return heartbeat_interval_ms(
        configured_ms,
        decision.context.config,
        decision.context.members,
        waits=waits,
        member_id=member.member_id,
    )


def _told(tasks: Tasks | Epochs) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(sorted(tasks[name]))) for name in sorted(tasks)
    )


# --- the common heartbeat --------------------------------------------------------------------------


def cacheable(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """For a heartbeat that says nothing new, of a member that has what it is meant to have."""
    if group.epoch != group.assignment_epoch or request.member_epoch <= JOIN:
        return None
    member = group.members.get(request.member_id)
    if member is None or member.classic is not None or request.member_epoch != member.current.epoch:
        return None
    soft = group.soft
    is_ready = soft.configured is not None and soft.configured.is_ready
    if not is_ready or soft.delayed or not member.is_reconciled_to(group.assignment_epoch):
        return None
    if request.instance_id not in (None, member.instance_id):
        return None
    if request.task_offsets is not None or request.task_end_offsets is not None:
        return None  # When it was said counts as well.
    config = context.group_configs.of(group.group_id)
    if has_news(group, member, config["streams.acceptable.recovery.lag"]):
        return None
    timeout_ms = config["streams.session.timeout.ms"]
    return CachedHeartbeat(group, member), (Arm(session_key(group.group_id, member.member_id), timeout_ms),)
