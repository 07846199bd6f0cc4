"""ConsumerGroupHeartbeat: a member joins, stays, reports what it owns, or leaves (KIP-848).

    epoch   meaning                                     requires
     0      it joins, or rejoins after it was fenced    rebalance timeout, topic names or an expression,
                                                        and an empty list of owned partitions
    >0      it stays, at this epoch                     an existing member
    -1      it leaves                                   an existing member
    -2      a static member leaves temporarily          an instance id

The steps are those of consumer, share and streams groups: admit, subscribe, retarget, reconcile, respond.

An epoch ahead of the member's own is fenced. So is one behind it, unless it is the previous one and the
member owns only what it was assigned: then it lost a response. The assignment is sent when the member joins,
when it sends a full heartbeat, and when it changed.

A static member that joins again under its own member id is accepted: its response was lost. Kafka 4.4 answers
UNRELEASED_INSTANCE_ID until its session has expired.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import State as ClassicState
from konvene.groups.consumer import conversion, log
from konvene.groups.consumer.current_assignment import CurrentAssignment, Epochs, Partitions
from konvene.groups.consumer.decision import Decision, offered
from konvene.groups.consumer.group import ConsumerGroup, Member, topic_names
from konvene.groups.consumer.heartbeat_fast_path import heartbeat_fast_path
from konvene.groups.consumer.leave import leave
from konvene.groups.consumer.subscriptions import maybe_bump_epoch, update_regex
from konvene.groups.consumer.targets import maybe_reconcile, retarget
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms, resends_assignment
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
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

FIRST_VERSION_WITH_MEMBER_IDS_OF_CLIENTS = 1


def heartbeat(
    groups: Mapping[str, object], request: ConsumerGroupHeartbeatRequest, context: Context
) -> Outcome:
    """Let the member that sends the heartbeat join, stay or leave, and respond.

    An error is a response with Kafka's message, and changes nothing."""
    try:
        _check(request, context)
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            return leave(groups, request, context)
        return heartbeat_fast_path(groups.get(request.group_id), request, context) or _stay(
            groups, request, context
        )
    except GroupError as refused:
        response = ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=str(refused))
        return Outcome((Reply(context.waiter, response),))


def _check(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """Check the fields of the request by themselves, without the group. Raises `GroupError`."""
    epoch = request.member_epoch
    client_makes_id = context.api_version >= FIRST_VERSION_WITH_MEMBER_IDS_OF_CLIENTS
    if not request.member_id.strip() and (client_makes_id or epoch > JOIN or epoch == LEAVE):
        raise _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in offered(context):
        raise GroupError(
            Errors.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(offered(context))}.",
        )


def _invalid(message: str) -> GroupError:
    return GroupError(Errors.INVALID_REQUEST, message)


def _stay(groups: Mapping[str, object], request: ConsumerGroupHeartbeatRequest, context: Context) -> Outcome:
    """Return the outcome of a heartbeat whose member joins or stays."""
    decision = _group(groups, request, context)
    owned = _owned(request)
    member_id = request.member_id or context.fresh_ids[0]
    max_size: int = context.config["group.consumer.max.size"]
    check_size(decision.group, max_size, member_id, request.instance_id)
    old, replaced = admit(
        decision,
        member_id,
        request.instance_id,
        request.member_epoch,
        lambda member: _check_epoch(member, request.member_epoch, owned),
        Member,
    )
    new = _updated(old, request, context)
    is_new = old.member_id not in decision.group.members and replaced is None
    if decision.group.members and groups.get(request.group_id) is not decision.group:
        decision.cause(causes.UPGRADED, new)
    changed = _subscribe(decision, old, new, is_new=is_new)
    target = retarget(decision, old, new, replaced=replaced)
    settled = maybe_reconcile(decision, new, target, owned, subscription_changed=changed)
    if settled is not old or replaced is not None:
        decision.changed.append(settled)
    if old.classic is not None:
        decision.disarm_classic(old.member_id)
    decision.arm_session(settled)
    decision.reply(context.waiter, _response(decision, request, old, settled))
    return decision.outcome()


# --- admit -----------------------------------------------------------------------------------------


def _group(
    groups: Mapping[str, object], request: ConsumerGroupHeartbeatRequest, context: Context
) -> Decision:
    """Return a decision about the group of the request. Raises GROUP_ID_NOT_FOUND.

    A member that joins creates the group if there is none, or upgrades a classic one."""
    group_id, joins = request.group_id, request.member_epoch == JOIN
    known = groups.get(group_id)
    if isinstance(known, ConsumerGroup):
        return Decision(known, context)
    if known is None:
        if not joins:
            raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return Decision(ConsumerGroup(group_id), context)
    if not joins or not isinstance(known, ClassicGroup):
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if known.state is ClassicState.EMPTY:
        return conversion.replace_empty(known, context)
    return conversion.upgrade(known, context)


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Check the epoch of a member's heartbeat; 0 is always valid. Raises FENCED_MEMBER_EPOCH.

    `owned`: the partitions that the heartbeat lists as owned."""
    current = member.current
    if epoch in (JOIN, current.epoch):
        return
    if epoch == current.previous_epoch < current.epoch and _is_subset(owned, current.assigned):
        return
    raise fenced_member_epoch("consumer", epoch, current.epoch)


def _is_subset(owned: Partitions | None, assigned: Epochs) -> bool:
    if owned is None:
        return False
    return all(p in assigned.get(topic, ()) for topic, partitions in owned.items() for p in partitions)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, tuple[int, ...]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, ()) + topic.partitions
    return owned


# --- subscribe -------------------------------------------------------------------------------------


def _updated(old: Member, request: ConsumerGroupHeartbeatRequest, context: Context) -> Member:
    """Return the member with the fields that the request has; the same object if none differs."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    fields = (
        request.instance_id if request.instance_id is not None else old.instance_id,
        request.rack_id if request.rack_id is not None else old.rack_id,
        context.client_id,
        context.client_host,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else old.rebalance_timeout_ms,
        topic_names(names) if names is not None else old.topics,
        regex if regex is not None else old.regex,
        request.server_assignor if request.server_assignor is not None else old.assignor,
    )
    known = (
        old.instance_id, old.rack_id, old.client_id, old.client_host, old.rebalance_timeout_ms, old.topics,
        old.regex, old.assignor,
    )  # fmt: skip
    if fields == known and old.classic is None:
        return old
    return Member(old.member_id, *fields, None, old.current)


def _subscribe(decision: Decision, old: Member, new: Member, *, is_new: bool) -> bool:
    """Write the record of a changed member, and bump the epoch if targets depend on the change.

    `old`, `new`: the member before and after the heartbeat; `is_new`: it joins the group now. Return whether
    its topics changed: the names or the expression."""
    names_changed = old.topics != new.topics
    if new is not old:
        decision.record(log.member_record(decision.group.group_id, new))
    regex_changed, is_resolved = update_regex(decision, old, new)
    assignor_changed = (old.assignor != new.assignor or is_new) and _changes_assignor(decision, old, new)
    if is_new:
        decision.cause(causes.MEMBER_JOINED, new)
    elif names_changed or is_resolved:
        decision.cause(causes.SUBSCRIPTION_CHANGED, new)
    elif assignor_changed:
        decision.cause(causes.ASSIGNOR_CHANGED, new)
    maybe_bump_epoch(decision, old, new, bump=names_changed or is_resolved or assignor_changed)
    return names_changed or regex_changed


def _changes_assignor(decision: Decision, old: Member, new: Member) -> bool:
    """Return whether the group prefers another assignor with `new` in place of `old`."""
    default = next(iter(offered(decision.context)))
    before = decision.group.preferred_assignor() or default
    return before != (decision.group.preferred_assignor(old, new) or default)


# --- respond ----------------------------------------------------------------------------------------


def _response(
    decision: Decision, request: ConsumerGroupHeartbeatRequest, old: Member, new: Member
) -> ConsumerGroupHeartbeatResponse:
    is_full = resends_assignment(decision.context) or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    assignment = None
    if request.member_epoch == JOIN or is_full or new.current.assigned != old.current.assigned:
        assignment = _assignment(new.current)
    return ConsumerGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.current.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            decision.config["consumer.heartbeat.interval.ms"],
            decision.context.config,
            decision.context.members,
            waits=is_waiting(new, decision.epoch, decision.assignment_epoch),
            member_id=new.member_id,
        ),
        assignment=assignment,
    )


def _assignment(current: CurrentAssignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(sorted(current.assigned[topic])))
            for topic in sorted(current.assigned)
        )
    )


# --- the response cache --------------------------------------------------------------------------


def cacheable(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to a repeated heartbeat depends on, and the session timer that it arms.

    None if each heartbeat has to be decided."""
    if group.regex_users:
        return None
    timeout_ms = context.group_configs.of(group.group_id)["consumer.session.timeout.ms"]
    return cached_heartbeat(group, request.member_id, request.instance_id, request.member_epoch, timeout_ms)
