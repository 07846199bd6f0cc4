"""StreamsGroupHeartbeat: a member joins, stays, reports what it runs, or leaves (KIP-1071).

    epoch   means                                       requires
     0      it joins, or rejoins after it was fenced    rebalance timeout, topology, and no owned tasks
    >0      it stays at this epoch                      a known member
    -1      it leaves                                   a known member
    -2      a static member leaves temporarily          an instance id

The steps are those of consumer groups, with the topology in between: admit, record the member, configure the
topology, retarget, reconcile, respond.

The first member sets the topology; later ones have to send the same, or an older one. The topology is
configured with the existing topics. If topics are missing or do not match, the response has a status, members
get no tasks, and missing internal topics are created.

Reported task offsets, shutdown requests and endpoint epochs are not in the log: members send them again to a
coordinator that was restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.modern.admit import admit, cached_heartbeat
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
from konvene.groups.streams.decision import Decision, delay_key
from konvene.groups.streams.endpoints import endpoint_partitions
from konvene.groups.streams.epoch_bumps import maybe_bump_epoch
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.leave import leave
from konvene.groups.streams.targets import keeps_target, maybe_reconcile, retarget, waiting_for_expressions
from konvene.groups.streams.topology import descriptions
from konvene.groups.streams.topology.changes import changes
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, Status
from konvene.groups.streams.topology.expressions import validate_expressions as check_expressions
from konvene.groups.streams.topology.internal_topics import create_missing_topics, missing_detail
from konvene.groups.streams.topology.resolution import configure_topology
from konvene.groups.streams.topology.topology import Topology, record_value
from konvene.groups.streams.validate import check_request, check_tasks, topology_after
from konvene.groups.streams.warmups import reported_tasks, update_report, would_bump_epoch
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from konvene.shard import causes
from konvene.shard.contract import Arm, Configs, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

FIRST_VERSION_WITH_MISSING_TAGS = 1
INT_MAX = 2**31 - 1

Groups = Mapping[str, object]


def heartbeat(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """Let the member that sends the heartbeat join, stay or leave, and respond.

    An error is a response, and changes nothing."""
    try:
        check_request(request, context.config["konvene.streams.mode"])
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            return leave(groups, request, context)
        return _stay(groups, request, context)
    except GroupError as refused:
        response = StreamsGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
        return Outcome((Reply(context.waiter, response),))


def _stay(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """Return the outcome of a heartbeat whose member joins or stays."""
    decision = _group(groups, request, context)
    group = decision.group
    is_known = groups.get(group.group_id) is group
    if request.member_epoch == JOIN:
        max_size: int = context.config["group.streams.max.size"]
        check_size(group, max_size, request.member_id, request.instance_id)
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
    changed = _record_member(decision, old, new, request, is_new=is_new)
    statuses: list[wire.Status] = []
    configured = _configure_topology(decision, new, request, statuses, changed=changed)
    if group.is_empty and (delay_ms := decision.config["streams.initial.rebalance.delay.ms"]) > 0:
        decision.arm(delay_key(group.group_id), delay_ms, unless_armed=True)
        decision.remember(delayed=True)
    target = retarget(decision, new, configured, replaced, statuses)
    settled = maybe_reconcile(decision, new, target, owned)
    if settled is not old or replaced is not None:
        decision.changed.append(settled)
    if old.classic is not None:
        decision.disarm_classic(old.member_id)
    decision.arm_session(settled)
    if request.shutdown_application and decision.soft.shutdown is None:
        decision.remember(shutdown=settled.member_id)
    _add_topic_status(decision, configured, statuses)
    _add_group_status(decision, settled, statuses)
    response = _response(decision, request, owned, old, settled, replaced, configured, is_known=is_known)
    describe = descriptions.request_description(decision, settled.topology_epoch, request.member_epoch)
    decision.reply(
        context.waiter, response.replace(status=tuple(statuses), topology_description_required=describe)
    )
    return decision.outcome()


# --- admit -----------------------------------------------------------------------------------------


def _group(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision:
    """Return a new decision about the group of the request.

    If the member joins, a missing group is created, an empty classic group is replaced, and one with members
    is upgraded if that is enabled. Raises GROUP_ID_NOT_FOUND.
    """
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
    """Raise FENCED_MEMBER_EPOCH unless the epoch of a member's heartbeat is 0, current, or acceptable.

    The previous epoch is acceptable if the member owns no tasks but those of its current assignment: then the
    response with the current epoch was lost.
    """
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
        partition in assigned.get(subtopology, ())
        for tasks, assigned in (
            (owned.active, has.active),
            (owned.standby, has.standby),
            (owned.warmup, has.warmup),
        )
        for subtopology, partitions in tasks.items()
        for partition in partitions
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> MemberAssignment | None:
    roles = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if roles[0] is None or roles[1] is None or roles[2] is None:
        return None
    return MemberAssignment(*(_by_subtopology(role or ()) for role in roles))


def _by_subtopology(tasks: tuple[TaskIds, ...]) -> Tasks:
    found: dict[str, tuple[int, ...]] = {}
    for each in tasks:
        found[each.subtopology_id] = found.get(each.subtopology_id, ()) + each.partitions
    return found


# --- record the member ------------------------------------------------------------------------------


def _updated(old: Member, request: StreamsGroupHeartbeatRequest, context: Context) -> Member:
    """Return the member with the fields of the request; fields that the request omits are unchanged.

    The endpoint is an exception: a member that joins without one has none.
    """
    endpoint, tags = request.user_endpoint, request.client_tags
    if tags is not None and len({tag.key for tag in tags}) < len(tags):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)  # As Kafka, which cannot make a map of them.
    user_endpoint = None if endpoint is None else (endpoint.host, endpoint.port)
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
        user_endpoint=user_endpoint
        if user_endpoint is not None or request.member_epoch == JOIN
        else old.user_endpoint,
        client_tags=(
            tuple(sorted((tag.key, tag.value) for tag in tags)) if tags is not None else old.client_tags
        ),
        classic=None,
    )
    return old if new == old else new


def _record_member(
    decision: Decision, old: Member, new: Member, request: StreamsGroupHeartbeatRequest, *, is_new: bool
) -> bool:
    """Record the member if it changed; return whether the group's epoch has to be bumped for that.

    A static member bumps it only by changing fields on which targets depend.
    """
    if new is old:
        return False
    decision.record(log.member_record(decision.group.group_id, new))
    affects_targets = (
        (old.topology_epoch, old.rack_id, old.client_tags, old.process_id)
        != (new.topology_epoch, new.rack_id, new.client_tags, new.process_id)
    )  # fmt: skip
    if request.instance_id is not None and not affects_targets:
        return False
    decision.cause(causes.MEMBER_JOINED if is_new else causes.MEMBER_METADATA_CHANGED, new)
    return True


# --- configure the topology ------------------------------------------------------------------------------


def _configure_topology(
    decision: Decision,
    new: Member,
    request: StreamsGroupHeartbeatRequest,
    statuses: list[wire.Status],
    *,
    changed: bool,
) -> ConfiguredTopology:
    """Return the group's topology, which the member may have replaced, configured with the existing topics.

    Bump the epoch if the topology, its topics or another input of targets changed; `changed`: the caller has
    found a change already. Add a status if the member's topology is stale.
    """
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
    if topology is None:  # The log has no topology: a member that joins sends it again.
        raise GroupError(
            Errors.FENCED_MEMBER_EPOCH,
            "The streams group has no topology. The member must abandon all its partitions and rejoin.",
        )
    if new.topology_epoch < topology.epoch and group.topology is not None:
        detail = (
            f"The member's topology epoch {new.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}."
        )
        statuses.append(wire.Status(status_code=Status.STALE_TOPOLOGY, status_detail=detail))
    configured, topics_changed = configure_topology(decision, topology, changed=changed)
    changed |= topics_changed
    if (
        mode != KIP or new.topology_epoch == topology.epoch
    ):  # Otherwise its tasks are those of another topology.
        check_tasks(request, topology, configured, mode)
    update_report(decision, new.member_id, request)
    maybe_bump_epoch(decision, new, topology, configured, reported_tasks(request), changed=changed)
    return configured


def _check_classic(group: StreamsGroup, topology: Topology) -> None:
    """Raise `GroupError` if classic members block a new topology, which their protocol cannot announce."""
    if group.topology is not None and group.classic_members:
        raise GroupError(
            Errors.STREAMS_INVALID_TOPOLOGY_EPOCH,
            f"Topology epoch {topology.epoch} cannot replace the group's {group.topology.epoch} while "
            f"{group.classic_members} of its members speak the classic protocol. Roll them first.",
        )


# --- respond ----------------------------------------------------------------------------------------


def _add_topic_status(
    decision: Decision, configured: ConfiguredTopology, statuses: list[wire.Status]
) -> None:
    """Add the status of a topology that is not ready; request the creation of missing internal topics."""
    if not configured.is_resolved and not keeps_target(decision):
        is_listed = any(each.status_code == Status.ASSIGNMENT_DELAYED for each in statuses)
        statuses += () if is_listed else (waiting_for_expressions(),)
    if configured.failure is None:
        return
    status, detail = configured.failure
    if configured.missing:
        effect = create_missing_topics(decision.group.group_id, configured, decision.context)
        decision.effects.append(effect)
        detail += missing_detail(decision.soft.creation, configured, decision.context.now_ms)
    statuses.append(wire.Status(status_code=status, status_detail=detail))


def _add_group_status(decision: Decision, member: Member, statuses: list[wire.Status]) -> None:
    if decision.soft.shutdown is not None:
        detail = (
            f"Streams group member {decision.soft.shutdown} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        statuses.append(wire.Status(status_code=Status.SHUTDOWN_APPLICATION, status_detail=detail))
    required = [tag.strip() for tag in decision.assignment_configs.get(TAGS, "").split(",") if tag.strip()]
    client_tags = dict(member.client_tags)
    missing = [tag for tag in required if tag not in client_tags]
    if missing and decision.context.api_version >= FIRST_VERSION_WITH_MISSING_TAGS:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config."
        )
        statuses.append(wire.Status(status_code=Status.MISSING_CLIENT_TAGS, status_detail=detail))


def _response(
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
    """Return the response to a heartbeat, without its statuses.

    `old`, `new`: the member before and after the heartbeat. `replaced`: id of the static member that it
    replaces. `is_known`: whether the group existed before; as in Kafka, the member that creates it gets
    endpoint epoch 0.
    """
    has = new.current.assigned
    is_changed = has != old.current.assigned
    has_tasks = request.member_epoch == JOIN or is_changed or _may_have_missed_tasks(request, owned, old)
    endpoint_epoch = decision.soft.endpoint_epoch
    if old.user_endpoint != new.user_endpoint or (is_changed and new.user_endpoint is not None):
        endpoint_epoch += 1
        if is_known:
            decision.remember(endpoint_epoch=endpoint_epoch)
    endpoints = None
    if endpoint_epoch != request.endpoint_information_epoch:
        endpoints = endpoint_partitions(decision, new, replaced, configured)
    lag: int = decision.config["streams.acceptable.recovery.lag"]
    return StreamsGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.current.epoch,
        heartbeat_interval_ms=_interval_ms(decision, new, configured),
        acceptable_recovery_lag_legacy=min(lag, INT_MAX) if _sends_legacy_lag(decision.context) else 0,
        task_offset_interval_ms=decision.config["streams.task.offset.interval.ms"],
        acceptable_recovery_lag=lag,
        active_tasks=_response_tasks(has.active) if has_tasks else None,
        standby_tasks=_response_tasks(has.standby) if has_tasks else None,
        warmup_tasks=_response_tasks(has.warmup) if has_tasks else None,
        endpoint_information_epoch=endpoint_epoch if is_known else 0,
        partitions_by_user_endpoint=endpoints,
    )


def _sends_legacy_lag(context: Context) -> bool:
    """Return whether the response has the acceptable lag in a field of version 0, in which Kafka sends 0."""
    return context.api_version == 0 and bool(context.config["konvene.streams.mode"] == KIP)


def _may_have_missed_tasks(
    request: StreamsGroupHeartbeatRequest, owned: MemberAssignment | None, old: Member
) -> bool:
    """Return whether the member may have missed the response with its current tasks.

    That is so if it is at an earlier epoch, sends a full heartbeat, or lists other tasks than its assigned
    ones, since tasks may be granted or revoked without a new epoch.
    """
    if owned is not None:
        reported = units(owned.active, owned.standby, owned.warmup)
        if request.rebalance_timeout_ms != -1 or reported != old.current.assigned.units():
            return True
    return JOIN < request.member_epoch < old.current.epoch


def _interval_ms(decision: Decision, member: Member, configured: ConfiguredTopology) -> int:
    return streams_heartbeat_interval_ms(
        decision.config,
        decision.context.config,
        decision.context.members,
        configured,
        waits=is_waiting(member, decision.epoch, decision.assignment_epoch),
        member_id=member.member_id,
    )


def streams_heartbeat_interval_ms(
    group_config: Configs,
    config: Configs,
    members: int,
    configured: ConfiguredTopology | None,
    *,
    waits: bool,
    member_id: str,
) -> int:
    """Return the heartbeat interval of a member that waits for tasks, or does not.

    It may be shorter than the configured one while the member waits, but not if a source topic is missing:
    the Java client stops its application if the topic is missing for twice this interval.
    """
    configured_ms: int = group_config["streams.heartbeat.interval.ms"]
    failure = None if configured is None else configured.failure
    if failure is not None and failure[0] is Status.MISSING_SOURCE_TOPICS:
        return configured_ms
    waits = waits or configured is None or not configured.is_ready
    return heartbeat_interval_ms(configured_ms, config, members, waits=waits, member_id=member_id)


def _response_tasks(tasks: Tasks | Epochs) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(sorted(tasks[name]))) for name in sorted(tasks)
    )


# --- the response cache --------------------------------------------------------------------------


def cacheable(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to a repeated heartbeat depends on, and the session timer that it arms.

    None if each heartbeat has to be decided."""
    soft = group.soft
    if soft.configured is None or not soft.configured.is_ready or soft.delayed:
        return None
    if request.task_offsets is not None or request.task_end_offsets is not None:
        return None  # The time of the report counts as well.
    config = context.group_configs.of(group.group_id)
    timeout_ms = config["streams.session.timeout.ms"]
    cached = cached_heartbeat(group, request.member_id, request.instance_id, request.member_epoch, timeout_ms)
    if cached is None:
        return None
    lag = config["streams.acceptable.recovery.lag"]
    return None if would_bump_epoch(group, group.members[request.member_id], lag) else cached
