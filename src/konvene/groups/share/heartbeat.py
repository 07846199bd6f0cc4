"""ShareGroupHeartbeat: a member joins, stays or leaves (KIP-932).

    epoch   means                                       requires
     0      it joins, or rejoins after it was fenced    topic names
    >0      it stays at this epoch, or the previous     a known member
    -1      it leaves                                   a known member

The steps are those of consumer, share and streams groups: admit, subscribe, retarget, reconcile, respond;
then new share partitions are initialized (`initialize`). A member does not report what it owns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from konvene.errors import Errors
from konvene.groups.consumer.group import topic_names
from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.heartbeat_intervals import (
    heartbeat_interval_ms,
    initializing_interval_ms,
    resends_assignment,
)
from konvene.groups.modern.admit import cached_heartbeat
from konvene.groups.modern.group import (
    JOIN,
    LEAVE,
    CachedHeartbeat,
    check_size,
    fenced_member_epoch,
    get_or_throw_member,
    is_waiting,
)
from konvene.groups.share import log
from konvene.groups.share.current_assignment import CurrentAssignment
from konvene.groups.share.decision import Decision
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.initialize import initialize, is_initializing, target_lacks_initialized
from konvene.groups.share.leave import leave
from konvene.groups.share.targets import maybe_reconcile, retarget
from konvene.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.shard import causes
from konvene.shard.contract import Arm, Configs, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

Groups = Mapping[str, object]


def heartbeat(groups: Groups, request: ShareGroupHeartbeatRequest, context: Context) -> Outcome:
    """Let the member that sends the heartbeat join, stay or leave, and respond.

    An error is a response, and changes nothing."""
    try:
        _check(request)
        if request.member_epoch == LEAVE:
            return leave(groups, request, context)
        return _stay(groups, request, context)
    except GroupError as refused:
        response = ShareGroupHeartbeatResponse(error_code=refused.error, error_message=str(refused))
        return Outcome((Reply(context.waiter, response),))


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Validate the fields that do not depend on the group. Raises `GroupError`."""
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE:
        raise _invalid("MemberEpoch is invalid.")


def _invalid(message: str) -> GroupError:
    return GroupError(Errors.INVALID_REQUEST, message)


def _stay(groups: Groups, request: ShareGroupHeartbeatRequest, context: Context) -> Outcome:
    """Return the outcome of a heartbeat whose member joins or stays.

    The response has the member's assignment if that may have changed."""
    decision = Decision(_group(groups, request), context)
    check_size(decision.group, context.config["group.share.max.size"], request.member_id, None)
    old = _admit(decision, request)
    new = _updated(old, request, context)
    bumped, names = _subscribe(decision, old, new)
    target = retarget(decision, new)
    settled = maybe_reconcile(decision, new, target, subscription_changed=bumped)
    if settled is not old:
        decision.changed.append(settled)
    initialize(decision, names)
    decision.arm_session(settled)
    decision.reply(context.waiter, _response(decision, request, old, settled))
    return decision.outcome()


# --- admit -----------------------------------------------------------------------------------------


def _group(groups: Groups, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """Return the group; a new one if a member joins a group that does not exist.

    Raises GROUP_ID_NOT_FOUND, also for an empty group of another type, which is not replaced.
    """
    group_id = request.group_id
    known = groups.get(group_id)
    if isinstance(known, ShareGroup):
        return known
    if known is not None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if request.member_epoch != JOIN:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return ShareGroup(group_id)


def _admit(decision: Decision, request: ShareGroupHeartbeatRequest) -> Member:
    """Return the member as before this heartbeat. Raises FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID."""
    member_id, epoch = request.member_id, request.member_epoch
    if epoch == JOIN:
        return decision.group.members.get(member_id) or Member(member_id)
    member = get_or_throw_member(decision.group, member_id)
    known, previous = member.current.epoch, member.current.previous_epoch
    if epoch > known:
        raise fenced_member_epoch("share", epoch, known)
    if epoch < known and epoch != previous:
        raise GroupError(
            Errors.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group "
            f"coordinator ({known}), and it does not match the previous member epoch ({previous}). The "
            "member must abandon all its partitions and rejoin.",
        )
    return member


# --- subscribe -------------------------------------------------------------------------------------


def _updated(old: Member, request: ShareGroupHeartbeatRequest, context: Context) -> Member:
    """Return the member with the fields of the request; fields that the request omits are unchanged."""
    names = request.subscribed_topic_names
    fields = (
        request.rack_id if request.rack_id is not None else old.rack_id,
        context.client_id,
        context.client_host,
        topic_names(names) if names is not None else old.topics,
    )
    if fields == (old.rack_id, old.client_id, old.client_host, old.topics):
        return old
    return Member(old.member_id, *fields, old.current)


def _subscribe(decision: Decision, old: Member, new: Member) -> tuple[bool, Collection[str]]:
    """Record the member, and bump the group's epoch if an input of the target assignment changed.

    The inputs are the members' subscriptions, the topics, and the initialized share partitions. Return
    whether the epoch was bumped, and the names of the topics to which the group subscribes.
    """
    group, context = decision.group, decision.context
    is_new, changed = old.member_id not in group.members, old.topics != new.topics
    if new is not old:
        decision.record(log.member_record(group.group_id, new))
    if is_new:
        decision.cause(causes.MEMBER_JOINED, new)
    elif changed:
        decision.cause(causes.SUBSCRIPTION_CHANGED, new)
    lacks = group.assignment_epoch >= group.epoch and target_lacks_initialized(group, context.topics)
    if lacks and not changed:
        decision.cause(causes.SHARE_PARTITIONS_INITIALIZED)
    bump = changed or lacks
    if not bump and decision.soft.hashed_topics is context.topics:
        return False, group.subscribers
    names = group.names_with((old,) if not is_new else (), (new,))
    found = hash_of(names, context)
    if decision.soft.hashed_topics is not context.topics:
        decision.remember(hashed_topics=context.topics)
    if not bump and found == decision.metadata_hash:
        return False, names
    if not bump:
        decision.cause(causes.TOPIC_METADATA_CHANGED)
    decision.bump(found)
    return True, names


# --- respond ----------------------------------------------------------------------------------------


def _response(
    decision: Decision, request: ShareGroupHeartbeatRequest, old: Member, new: Member
) -> ShareGroupHeartbeatResponse:
    is_full = request.subscribed_topic_names is not None or resends_assignment(decision.context)
    assignment = None
    if request.member_epoch == JOIN or is_full or new.current.assigned != old.current.assigned:
        assignment = _assignment(new.current)
    return ShareGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.current.epoch,
        heartbeat_interval_ms=_interval_ms(
            decision.config,
            decision.context.config,
            decision.context.members,
            member_id=new.member_id,
            waits=is_waiting(new, decision.epoch, decision.assignment_epoch),
            initializes=bool(decision.state_topics.initializing),
        ),
        assignment=assignment,
    )


def next_interval_ms(
    group: ShareGroup, member: Member, group_config: Configs, config: Configs, members: int
) -> int:
    """Return the heartbeat interval in the next response to a member.

    `members`: the number of members in all groups of the broker."""
    return _interval_ms(
        group_config,
        config,
        members,
        member_id=member.member_id,
        waits=is_waiting(member, group.epoch, group.assignment_epoch),
        initializes=is_initializing(group),
    )


def _interval_ms(
    group_config: Configs, config: Configs, members: int, *, member_id: str, waits: bool, initializes: bool
) -> int:
    """Return the heartbeat interval of a member.

    `waits`: it waits for its target; `initializes`: share partitions of the group are being initialized."""
    configured_ms: int = group_config["share.heartbeat.interval.ms"]
    if initializes:
        return initializing_interval_ms(configured_ms, config, members)
    return heartbeat_interval_ms(configured_ms, config, members, waits=waits, member_id=member_id)


def _assignment(current: CurrentAssignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(sorted(current.assigned[topic])))
            for topic in sorted(current.assigned)
            if current.assigned[topic]
        )
    )


# --- the response cache --------------------------------------------------------------------------


def cacheable(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """Return what the response to a repeated heartbeat depends on, and the session timer that it arms.

    None if each heartbeat has to be decided."""
    timeout_ms = context.group_configs.of(group.group_id)["share.session.timeout.ms"]
    cached = cached_heartbeat(group, request.member_id, None, request.member_epoch, timeout_ms)
    if cached is None or is_initializing(group) or target_lacks_initialized(group, context.topics):
        return None
    return cached
