"""How members leave a streams group: by themselves, when a timer expires, or removed by an administrator.

Their records are deleted, the group's epoch is bumped, and the remaining members get their tasks. When the
last member leaves, the group keeps its topology, and the assignment of the empty group is complete at once.

A static member that leaves temporarily (epoch -2) keeps its tasks until its session expires.

If all remaining members use the classic protocol, the group is downgraded (`classic.conversion`), as far as
`konvene.streams.migration.policy` and `group.max.size` allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from konvene.groups.modern.group import LEAVE_STATIC, get_or_throw_group
from konvene.groups.modern.leave import Departure, MemberTimers, leaving_member
from konvene.groups.streams.classic import conversion
from konvene.groups.streams.current_assignment import NO_OWNED_TASKS, CurrentAssignment, MemberState
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.targets import compute_first_target
from konvene.groups.streams.topology import resolution
from konvene.groups.streams.warmups import hand_over_report
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome

Groups = Mapping[str, object]


def leave(groups: Groups, request: StreamsGroupHeartbeatRequest, context: Context) -> Outcome:
    """Remove a member that sent a heartbeat at epoch -1; at -2, record that a static one left temporarily.

    Raises `GroupError`.
    """
    group = get_or_throw_group(groups, request.group_id, StreamsGroup)
    decision = Decision(group, context)
    member = leaving_member(group, request.member_id, request.instance_id)
    if request.shutdown_application and decision.soft.shutdown is None:
        decision.remember(shutdown=member.member_id)
    decision.reply(
        context.waiter,
        StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, status=()
        ),
    )
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
        decision.set_aside(member, _while_away(member.current))
        return decision.outcome()
    return fence(decision, [(member, causes.MEMBER_LEFT, None)])


def _while_away(current: CurrentAssignment) -> CurrentAssignment:
    """Return the assignment of a static member that left temporarily: it keeps its tasks.

    The epoch of each active task becomes 0, since the member returns under another member id at epoch 0.
    """
    has = current.assigned
    since = {subtopology: dict.fromkeys(epochs, 0) for subtopology, epochs in has.active.items()}
    return replace(
        current, epoch=LEAVE_STATIC, assigned=replace(has, active=since), pending_revocation=NO_OWNED_TASKS
    )


def fence(decision: Decision, departures: Sequence[Departure[Member]]) -> Outcome:
    """Remove these members, and return the outcome of the decision, which has the replies already.

    If all remaining members are classic and the config allows it, the group is downgraded instead."""
    if not departures:
        return decision.outcome()
    group = decision.group
    for member, cause, reason in departures:
        decision.cause(cause, member, reason=reason)
    members: list[Member] = [member for member, _, _ in departures]
    if conversion.may_downgrade(decision, members):
        return conversion.downgrade(decision, members)
    for member in members:
        decision.remove(member)
        decision.disarm_all(member.member_id)
    for member in sorted(members, key=lambda each: each.member_id):
        hand_over_report(decision, member)
    decision.bump()
    if len(members) == len(group.members):
        decision.assign_nothing()
        decision.remember(shutdown=None)
        resolution.on_group_emptied(decision)
    return decision.outcome()


# --- timers ----------------------------------------------------------------------------------------

TIMERS: Final[MemberTimers[StreamsGroup]] = MemberTimers(
    lambda group, member, cause, context: fence(Decision(group, context), [(member, cause, None)]),
    MemberState.UNREVOKED_TASKS,
)


def initial_delay_ended(group: StreamsGroup, context: Context) -> Outcome:
    """Compute the first targets of a group whose initial rebalance delay has ended."""
    return compute_first_target(Decision(group, context))


def load(group: StreamsGroup, context: Context) -> Outcome:
    """Restart the session and revocation timers of each member after a load.

    Also request the resolution of the topology's expressions."""
    decision = Decision(group, context)
    decision.arm_all()
    resolution.on_group_loaded(decision)
    return decision.outcome()
