"""How members of a consumer group go: they leave, or their time is over, or somebody removes them.

All that is kept of them goes, the group's epoch moves, and whoever is left gets what they had. The last one
leaves an empty group behind, which is at its own epoch: there is nothing to assign.

A static member that leaves for a while (epoch -2) keeps its place and its partitions until its session is
over; nobody else is troubled.

If those who are left all speak the classic protocol, the group is a classic one again (`convert`), as far as
`group.consumer.migration.policy` and `group.max.size` let it.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.consumer import conversion, log
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.decision import Decision, session_key
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.subscriptions import hash_of, names_without
from konvene.groups.heartbeat_intervals import grace_ms
from konvene.groups.modern.conversion import Gone
from konvene.groups.modern.group import LEAVE_STATIC, known_member, static_member
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Arm, Context, Disarm, Outcome
from konvene.shard.errors import GroupError

Groups = MutableMapping[str, Any]


def leave(groups: Groups, request: ConsumerGroupHeartbeatRequest, context: Context) -> Outcome:
    """A heartbeat at epoch -1 or -2. Raises `GroupError`."""
    group = consumer_group(groups, request.group_id)
    step = Decision(group, context)
    if request.instance_id is None:
        member = known_member(group, request.member_id)
    else:
        member = static_member(group, request.member_id, request.instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
        _set_aside(step, member)
        step.reply(context.waiter, response.replace(member_id=member.member_id))
        return step.outcome()
    step.reply(context.waiter, response)
    return fence(step, [(member, causes.MEMBER_LEFT, None)])


def consumer_group(groups: Groups, group_id: str) -> ConsumerGroup:
    """The group of that name, if it is one of ours. Raises GROUP_ID_NOT_FOUND."""
    group = groups.get(group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def _set_aside(step: Decision, member: Member) -> None:
    """It keeps what it has; when it is back, under another id, it has had it from the beginning."""
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.current.assigned.items()}
    current = replace(member.current, epoch=LEAVE_STATIC, assigned=assigned, pending_revocation={})
    step.record(log.current_record(step.group.group_id, member.member_id, current))
    step.settled[member.member_id] = current
    step.timers.append(Disarm(step.revocation_key(member)))


def fence(step: Decision, gone: Sequence[Gone]) -> Outcome:
    """These members go, at one stroke. `step` has the replies already."""
    if not gone:
        return step.outcome()
    group = step.group
    for member, kind, reason in gone:
        step.cause(kind, member, reason=reason)
    members = [member for member, _, _ in gone]
    if conversion.may_downgrade(group, members, step.context):
        return conversion.downgraded(step, members)
    for member in members:
        step.remove(member)
        step.disarm_all(member.member_id)
    counts = {m.regex: sum(other.regex == m.regex for other in members) for m in members if m.regex}
    for expression in sorted(counts):
        if group.regex_users[expression] == counts[expression]:
            step.record(log.regex_tombstone(group.group_id, expression))
    step.bump(hash_of(names_without(group, members), step.context))
    if len(members) == len(group.members):
        step.assignment_epoch = step.epoch
        step.record(log.assignment_record(group.group_id, step.epoch, 0))
    return step.outcome()


# --- a lost connection -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection on which a member spoke last was closed, and it had not left."""

    group_id: str
    member_id: str


def disconnected(group: ConsumerGroup | None, member_id: str, context: Context) -> Outcome:
    """A dynamic member has `konvene.session.disconnect.grace.ms` to be heard of again, if that is set."""
    member = group.members.get(member_id) if group is not None else None
    if group is None or member is None or member.instance_id is not None or member.classic is not None:
        return NOTHING
    config = context.group_configs.of(group.group_id)
    left_ms = grace_ms("consumer", config, context.config, context.members)
    if left_ms is None:
        return NOTHING
    return Outcome(timers=(Arm(session_key(group.group_id, member_id), left_ms),))


# --- timers ----------------------------------------------------------------------------------------


def session_expired(group: ConsumerGroup, member_id: str, context: Context) -> Outcome:
    """No heartbeat came in time."""
    return _expired(group, member_id, context, causes.SESSION_EXPIRED)


def revocation_timed_out(groups: Groups, group_id: str, member_id: str, context: Context) -> Outcome:
    """A member was told to give something up and did not confirm it in its rebalance timeout."""
    group = groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
    if member is None or member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    return _expired(groups[group_id], member_id, context, causes.REBALANCE_TIMEOUT)


def rejoin_timed_out(groups: Groups, group_id: str, member_id: str, context: Context) -> Outcome:
    """A member of the classic protocol was told to rejoin and did not."""
    return _expired(groups.get(group_id), member_id, context, causes.REBALANCE_TIMEOUT)


def resync_timed_out(groups: Groups, group_id: str, member_id: str, context: Context) -> Outcome:
    """A member of the classic protocol joined and did not ask for its assignment."""
    return _expired(groups.get(group_id), member_id, context, causes.SYNC_TIMEOUT)


def _expired(group: Any, member_id: str, context: Context, kind: str) -> Outcome:
    member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
    if member is None:
        return NOTHING
    return fence(Decision(group, context), [(member, kind, None)])


def loaded(group: ConsumerGroup, context: Context) -> Outcome:
    """After a restart each member has its session, and its time to revoke, from the beginning."""
    step = Decision(group, context)
    for member in group.members.values():
        step.arm_session(member)
        owes = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if owes and member.current.epoch >= 0 and member.classic is None:
            step.arm(step.revocation_key(member), member.rebalance_timeout_ms)
    return step.outcome()
