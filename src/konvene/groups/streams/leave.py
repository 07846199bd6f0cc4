"""How members of a streams group go: they leave, or their time is over, or somebody removes them.

All that is kept of them goes, the group's epoch moves, and whoever is left gets their tasks. The last one
leaves an empty group behind, which keeps its topology and is at its own epoch: there is nothing to assign.

A static member that leaves for a while (epoch -2) keeps its place and its tasks until its session is over.

If those who are left all speak the classic protocol, the group is a classic one again (`convert`), as far as
`konvene.streams.migration.policy` and `group.max.size` let it.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.heartbeat_intervals import grace_ms
from konvene.groups.modern.conversion import Gone
from konvene.groups.modern.group import LEAVE_STATIC, known_member, static_member
from konvene.groups.streams import log
from konvene.groups.streams.classic import conversion
from konvene.groups.streams.current_assignment import NONE_HELD, CurrentAssignment, MemberState
from konvene.groups.streams.decision import Decision, delay_key, revocation_key, session_key
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.targets import delay_is_over
from konvene.groups.streams.topology import resolution
from konvene.groups.streams.warmups import leave_offsets
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Arm, Context, Disarm, Outcome
from konvene.shard.errors import GroupError

Groups = MutableMapping[str, Any]


def leave(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """A heartbeat at epoch -1 or -2. Raises `GroupError`."""
    group = streams_group(groups, request.group_id)
    step = Decision(group, context)
    if request.instance_id is None:
        member = known_member(group, request.member_id)
    else:
        member = static_member(group, request.member_id, request.instance_id)
    if request.shutdown_application and step.soft.shutdown is None:
        step.remember(shutdown=member.member_id)
    step.reply(
        context.waiter,
        StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, status=()
        ),
    )
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
        _set_aside(step, member)
        return step.outcome()
    return fence(step, [(member, causes.MEMBER_LEFT, None)])


def streams_group(groups: Groups, group_id: str) -> StreamsGroup:
    """The group of that name, if it is one of ours. Raises GROUP_ID_NOT_FOUND."""
    group = groups.get(group_id)
    if group is None:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, StreamsGroup):
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    return group


def _set_aside(step: Decision, member: Member) -> None:
    """It keeps what it has; when it is back, under another id, it has had it from the beginning."""
    has = member.current.assigned
    since = {subtopology: dict.fromkeys(epochs, 0) for subtopology, epochs in has.active.items()}
    current: CurrentAssignment = replace(
        member.current, epoch=LEAVE_STATIC, assigned=replace(has, active=since), pending_revocation=NONE_HELD
    )
    step.record(log.current_record(step.group.group_id, member.member_id, current))
    step.settled[member.member_id] = current
    step.timers.append(Disarm(revocation_key(step.group.group_id, member.member_id)))


def fence(step: Decision, gone: Sequence[Gone]) -> Outcome:
    """These members go, at one stroke, each for its reason. `step` has the replies already."""
    if not gone:
        return step.outcome()
    group = step.group
    for member, why, reason in gone:
        step.cause(why, member, reason=reason)
    members: list[Member] = [member for member, _, _ in gone]
    if conversion.may_downgrade(step, members):
        return conversion.downgrade(step, members)
    for member in members:
        step.remove(member)
        step.disarm_all(member.member_id)
    for member in sorted(members, key=lambda each: each.member_id):
        leave_offsets(step, member)
    step.bump()
    if len(members) == len(group.members):
        step.assignment_epoch = step.epoch
        step.record(log.assignment_record(group.group_id, step.epoch, 0))
        step.remember(shutdown=None)
        resolution.on_group_emptied(step)
    return step.outcome()


# --- a lost connection -----------------------------------------------------------------------------


def disconnected(group: StreamsGroup, member_id: str, context: Context) -> Outcome:
    """A dynamic member has `konvene.session.disconnect.grace.ms` to be heard of again, if that is set."""
    member = group.members.get(member_id)
    if member is None or member.instance_id is not None or member.classic is not None:
        return NOTHING
    config = context.group_configs.of(group.group_id)
    left_ms = grace_ms("streams", config, context.config, context.members)
    if left_ms is None:
        return NOTHING
    return Outcome(timers=(Arm(session_key(group.group_id, member_id), left_ms),))


# --- timers ----------------------------------------------------------------------------------------


def session_expired(group: StreamsGroup, member_id: str, context: Context) -> Outcome:
    """No heartbeat came in time."""
    return _expired(group, member_id, context, causes.SESSION_EXPIRED)


def revocation_timed_out(group: StreamsGroup, member_id: str, context: Context) -> Outcome:
    """A member was told to give something up and did not confirm it in its rebalance timeout."""
    member = group.members.get(member_id)
    if member is None or member.current.state is not MemberState.UNREVOKED_TASKS:
        return NOTHING
    return _expired(group, member_id, context, causes.REBALANCE_TIMEOUT)


def rejoin_timed_out(group: StreamsGroup, member_id: str, context: Context) -> Outcome:
    """A member of the classic protocol was told to rejoin and did not."""
    return _expired(group, member_id, context, causes.REBALANCE_TIMEOUT)


def resync_timed_out(group: StreamsGroup, member_id: str, context: Context) -> Outcome:
    """A member of the classic protocol joined and did not ask for its assignment."""
    return _expired(group, member_id, context, causes.SYNC_TIMEOUT)


def _expired(group: StreamsGroup, member_id: str, context: Context, kind: str) -> Outcome:
    member = group.members.get(member_id)
    if member is None:
        return NOTHING
    return fence(Decision(group, context), [(member, kind, None)])


def delay_ended(group: Any, context: Context) -> Outcome:
    """Members had their time to arrive: the first target is computed now."""
    return delay_is_over(Decision(group, context)) if isinstance(group, StreamsGroup) else NOTHING


def loaded(group: StreamsGroup, context: Context) -> Outcome:
    """After a restart each member has its session, and its time to revoke, from the beginning."""
    step = Decision(group, context)
    for member in group.members.values():
        step.arm_session(member)
        owes = member.current.state is MemberState.UNREVOKED_TASKS
        if owes and member.current.epoch >= 0 and member.classic is None:
            step.arm(revocation_key(group.group_id, member.member_id), member.rebalance_timeout_ms)
    resolution.on_group_loaded(step)
    return step.outcome()


def let_go_timers(group: StreamsGroup) -> tuple[Disarm, ...]:
    """Of a group that is deleted, or gives way to another kind."""
    return (Disarm(delay_key(group.group_id)),)
