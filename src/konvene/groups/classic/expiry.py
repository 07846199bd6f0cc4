"""Timers of classic groups (session, join and sync timeouts), and their start after a load.

A timer whose member has left, or whose rebalance has ended, has no effect.
"""

from __future__ import annotations

from konvene.groups.classic.decision import Decision, initial_delay_ms, join_key, session_key
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.log import REBALANCE_DUE_MS
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Arm, Context, Disarm, Outcome


def session_expired(known: ClassicGroup, member_id: str, context: Context) -> Outcome:
    """Remove a member whose session timed out, unless a request of it is pending.

    A new member, which has not been in a generation yet, is removed even if its JoinGroup is pending.
    """
    if member_id in known.pending_joins:
        decision = Decision(known, context)
        decision.group.drop(member_id)
        if known.state is State.PREPARING_REBALANCE and decision.group.all_joined:
            decision.complete_join()
        return decision.outcome()
    member = known.members.get(member_id)
    if member is None:
        return NOTHING
    is_pending = member.join_waiter is not None or member.sync_waiter is not None
    if is_pending and not member.is_new:
        return NOTHING
    decision = Decision(known, context)
    decision.cause(causes.SESSION_EXPIRED, member)
    decision.remove(member)
    decision.rebalance_after_expiry()
    return decision.outcome()


def load(group: ClassicGroup, context: Context) -> Outcome:
    """Start the session timer of each member of a loaded group.

    Also start a rebalance if the group was converted to a classic one and has not rebalanced since, or if it
    exceeds the maximum size."""
    timers: list[Arm | Disarm] = []
    for member in group.members.values():
        timers.append(Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms))
    cause = _rebalance_cause(group, context)
    if cause is None:
        return Outcome(timers=tuple(timers))
    decision = Decision(group, context)
    decision.cause(cause, None)
    decision.start_rebalance()
    rebalance = decision.outcome()
    return Outcome(timers=(*timers, *rebalance.timers), soft_records=rebalance.soft_records)


def _rebalance_cause(group: ClassicGroup, context: Context) -> str | None:
    """Return the cause of the rebalance that a loaded group has to start; None if it need not."""
    if len(group.members) > context.config["group.max.size"]:
        return causes.GROUP_TOO_LARGE  # The limit was lowered: the last members to rejoin are rejected.
    is_due = group.members and group.state_timestamp_ms == REBALANCE_DUE_MS
    return causes.DOWNGRADED if is_due else None


def join_timed_out(known: ClassicGroup, context: Context) -> Outcome:
    """Start the generation with the members that joined, or extend the initial delay of a new group.

    It is extended if members joined during the delay and the rebalance timeout has not passed.
    """
    if known.state is not State.PREPARING_REBALANCE:
        return NOTHING
    decision = Decision(known, context)
    group = decision.group
    if group.was_empty and group.member_added and group.initial_remaining_ms > 0:
        group.member_added = False
        waited, remaining = group.initial_delay_ms, group.initial_remaining_ms
        group.initial_delay_ms = min(initial_delay_ms(context), remaining)
        group.initial_remaining_ms = max(remaining - waited, 0)
        decision.arm(join_key(group.group_id), group.initial_delay_ms)
    else:
        decision.complete_join()
    return decision.outcome()


def sync_timed_out(known: ClassicGroup, context: Context) -> Outcome:
    """Remove the members that joined but did not send a SyncGroup, and start a rebalance."""
    if known.state not in (State.COMPLETING_REBALANCE, State.STABLE):
        return NOTHING
    if not known.pending_syncs:
        return NOTHING
    decision = Decision(known, context)
    for member_id in sorted(known.pending_syncs):
        member = known.members[member_id]
        decision.cause(causes.SYNC_TIMEOUT, member)
        decision.remove(member)
    decision.start_rebalance()
    return decision.outcome()
