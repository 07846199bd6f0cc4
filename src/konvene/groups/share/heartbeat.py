"""ShareGroupHeartbeat: a member joins, stays or leaves (KIP-932).

    epoch   means                                         needs
     0      it joins, or comes back after it was fenced   the names that it reads
    >0      it is at this epoch, or at the one before     to be known
    -1      it leaves                                     to be known

The steps are those of all groups whose coordinator assigns: admit, subscribe, retarget, reconcile, answer;
then what is read and not there yet is begun with (`initialize`). A member reports nothing of what it has.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

from konvene.errors import Errors
from konvene.groups.consumer.group import topic_names
from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
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
from konvene.groups.share.decision import Decision, session_key
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.initialize import assignment_lacks_some, initialize, is_beginning
from konvene.groups.share.leave import leave
from konvene.groups.share.targets import maybe_reconcile, retarget
from konvene.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Reply
from konvene.shard.errors import GroupError

Groups = MutableMapping[str, Any]


def heartbeat(groups: Groups, request: ShareGroupHeartbeatRequest, context: Context) -> Outcome:
    """Decide a ShareGroupHeartbeat. A refusal is answered with Kafka's words, and leaves no trace."""
    try:
        _check(request)
        if request.member_epoch == LEAVE:
            return leave(groups, request, context)
        return _stay(groups, request, context)
    except GroupError as refused:
        response = ShareGroupHeartbeatResponse(error_code=refused.error, error_message=str(refused))
        return Outcome((Reply(context.waiter, response),))


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """What is wrong with it, whatever the group is."""
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
    """A heartbeat that is no farewell."""
    decision = Decision(_group(groups, request), context)
    check_size(decision.group, context.config["group.share.max.size"], request.member_id, None)
    old = _admit(decision, request)
    new = _updated(old, request, context)
    moved, names = _subscribe(decision, old, new)
    target = retarget(decision, new)
    settled = maybe_reconcile(decision, new, target, subscription_changed=moved)
    if settled is not old:
        decision.changed.append(settled)
    initialize(decision, names)
    decision.arm_session(settled)
    decision.reply(context.waiter, _answer(decision, request, old, settled))
    return decision.outcome()


# --- admit -----------------------------------------------------------------------------------------


def _group(groups: Groups, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """The group, made where somebody joins it. No other kind ever becomes one, not even if it is empty."""
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
    """The member as it is so far, if it may be at its epoch. With 0 it comes back, and it may always."""
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
    """The member with what it says of itself now; what it does not say is as it was."""
    names = request.subscribed_topic_names
    given = (
        request.rack_id if request.rack_id is not None else old.rack_id,
        context.client_id,
        context.client_host,
        topic_names(names) if names is not None else old.topics,
    )
    if given == (old.rack_id, old.client_id, old.client_host, old.topics):
        return old
    return Member(old.member_id, *given, old.current)


def _subscribe(decision: Decision, old: Member, new: Member) -> tuple[bool, Collection[str]]:
    """Write down what the member said, and move the epoch if that matters, or if topics are not what they
    were, or share partitions have come; whether it has moved, and what the group reads now."""
    group, context = decision.group, decision.context
    is_new, changed = old.member_id not in group.members, old.topics != new.topics
    if new is not old:
        decision.record(log.member_record(group.group_id, new))
    if is_new:
        decision.cause(causes.MEMBER_JOINED, new)
    elif changed:
        decision.cause(causes.SUBSCRIPTION_CHANGED, new)
    lacks = group.assignment_epoch >= group.epoch and assignment_lacks_some(group, context.topics)
    if lacks and not changed:
        decision.cause(causes.SHARE_PARTITIONS_INITIALIZED)
    bump = changed or lacks
    if not bump and decision.soft.seen is context.topics:
        return False, group.subscribers
    names = group.names_with((old,) if not is_new else (), (new,))
    found = hash_of(names, context)
    if decision.soft.seen is not context.topics:
        decision.remember(seen=context.topics)
    if not bump and found == decision.metadata_hash:
        return False, names
    if not bump:
        decision.cause(causes.TOPIC_METADATA_CHANGED)
    decision.bump(found)
    return True, names


# --- answer ----------------------------------------------------------------------------------------


def _answer(
    decision: Decision, request: ShareGroupHeartbeatRequest, old: Member, new: Member
) -> ShareGroupHeartbeatResponse:
    has_all_tags = request.subscribed_topic_names is not None
    told = None
    if request.member_epoch == JOIN or has_all_tags or new.current.assigned != old.current.assigned:
        told = _assignment(new.current)
    waits = is_waiting(new, decision.epoch, decision.assignment_epoch) or bool(
        decision.state_topics.initializing
    )
    return ShareGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.current.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms(
            decision.config["share.heartbeat.interval.ms"],
            decision.context.config,
            decision.context.members,
            waits=waits,
            member_id=new.member_id,
        ),
        assignment=told,
    )


def waits(group: ShareGroup, member: Member) -> bool:
    """The same for a member of the group as it is: also while share partitions have still to begin."""
    return is_waiting(member, group.epoch, group.assignment_epoch) or is_beginning(group)


def _assignment(current: CurrentAssignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(sorted(current.assigned[topic])))
            for topic in sorted(current.assigned)
            if current.assigned[topic]
        )
    )


# --- the common heartbeat --------------------------------------------------------------------------


def cacheable(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, context: Context
) -> tuple[CachedHeartbeat, tuple[Arm | Disarm, ...]] | None:
    """For a heartbeat that says nothing new, of a member that has what it is meant to have."""
    if group.epoch != group.assignment_epoch or is_beginning(group):
        return None
    member = group.members.get(request.member_id)
    if member is None or not JOIN < request.member_epoch == member.current.epoch:
        return None
    if not member.is_reconciled_to(group.assignment_epoch):
        return None
    if assignment_lacks_some(group, context.topics):
        return None
    timeout_ms = context.group_configs.of(group.group_id)["share.session.timeout.ms"]
    return CachedHeartbeat(group, member), (Arm(session_key(group.group_id, member.member_id), timeout_ms),)
