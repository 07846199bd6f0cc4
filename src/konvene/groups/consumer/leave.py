"""How members leave a consumer group: by themselves, because a timer expires, or removed by an administrator.

Their records are deleted, the group's epoch is bumped, and the remaining members get their partitions. When
the last member leaves, the assignment of the empty group is complete at once.

A static member that leaves temporarily (epoch -2) keeps its partitions until its session expires, without a
rebalance.

If all remaining members use the classic protocol, the group is downgraded (`conversion`), as far as
`group.consumer.migration.policy` and `group.max.size` allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from konvene.groups.consumer import conversion, log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.decision import Decision
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.subscriptions import hash_of, names_without
from konvene.groups.modern.group import LEAVE_STATIC, get_or_throw_group
from konvene.groups.modern.leave import Departure, MemberTimers, leaving_member
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.shard import causes
from konvene.shard.contract import Context, Outcome


def leave(groups: Mapping[str, object], request: ConsumerGroupHeartbeatRequest, context: Context) -> Outcome:
    """Remove the member of a heartbeat at epoch -1; at -2, record that a static one left temporarily.

    Raises `GroupError`."""
    group = get_or_throw_group(groups, request.group_id, ConsumerGroup)
    decision = Decision(group, context)
    member = leaving_member(group, request.member_id, request.instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
        decision.set_aside(member, _while_away(member.current))
        decision.reply(context.waiter, response.replace(member_id=member.member_id))
        return decision.outcome()
    decision.reply(context.waiter, response)
    return fence(decision, [(member, causes.MEMBER_LEFT, None)])


def _while_away(current: CurrentAssignment) -> CurrentAssignment:
    """Return the assignment of a static member that leaves temporarily: it keeps its partitions.

    The epoch of each partition becomes 0, since the member returns under another member id at epoch 0."""
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in current.assigned.items()}
    return replace(current, epoch=LEAVE_STATIC, assigned=assigned, pending_revocation={})


def fence(decision: Decision, departures: Sequence[Departure[Member]]) -> Outcome:
    """Remove the departing members from the group, and return the outcome of the decision.

    The caller has added its replies to the decision before. If all remaining members are classic and the
    config allows it, the group is downgraded instead. Without departures nothing changes."""
    if not departures:
        return decision.outcome()
    group = decision.group
    for member, cause, reason in departures:
        decision.cause(cause, member, reason=reason)
    members = [member for member, _, _ in departures]
    if conversion.may_downgrade(group, members, decision.context):
        return conversion.downgrade(decision, members)
    for member in members:
        decision.remove(member)
        decision.disarm_all(member.member_id)
    counts = {m.regex: sum(other.regex == m.regex for other in members) for m in members if m.regex}
    for expression in sorted(counts):
        if group.regex_users[expression] == counts[expression]:
            decision.record(log.regex_tombstone(group.group_id, expression))
    decision.bump(hash_of(names_without(group, members), decision.context))
    if len(members) == len(group.members):
        decision.assign_nothing()
    return decision.outcome()


# --- timers ----------------------------------------------------------------------------------------

TIMERS: Final[MemberTimers[ConsumerGroup]] = MemberTimers(
    lambda group, member, cause, context: fence(Decision(group, context), [(member, cause, None)]),
    MemberState.UNREVOKED_PARTITIONS,
)


def load(group: ConsumerGroup, context: Context) -> Outcome:
    """Restart the session and revocation timers of each member after a load."""
    decision = Decision(group, context)
    decision.arm_all()
    return decision.outcome()
