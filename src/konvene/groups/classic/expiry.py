"""Timers that ran out: a member's session, the time to join, the time to sync.

A key that no longer means anything (the member is gone, the rebalance is over) decides nothing.
"""

from __future__ import annotations

from konvene.groups.classic.decision import Decision, initial_delay_ms, join_key
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.log import REBALANCE_DUE_MS
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Context, Outcome


def session_expired(known: ClassicGroup | None, member_id: str, context: Context) -> Outcome:
    """No heartbeat came in time. A member that waits for an answer is alive, unless it is new."""
    if known is None:
        return NOTHING
    if member_id in known.pending_joins:
        step = Decision(known, context)
        step.group.drop(member_id)
        if known.state is State.PREPARING_REBALANCE and step.group.all_joined:
            step.complete_join()
        return step.outcome()
    member = known.members.get(member_id)
    if member is None:
        return NOTHING
    waits = member.join_waiter is not None or member.sync_waiter is not None
    if waits and not member.is_new:
        return NOTHING
    step = Decision(known, context)
    step.cause(causes.SESSION_EXPIRED, member)
    step.remove(member)
    step.close_ranks()
    return step.outcome()


def rebalance_due(group: ClassicGroup, context: Context) -> str | None:
    """Why a group that was just loaded has to rebalance, where it does."""
    if len(group.members) > context.config["group.max.size"]:
        return causes.GROUP_TOO_LARGE  # The limit shrank: the last to come back find no room.
    is_due = group.members and group.state_timestamp_ms == REBALANCE_DUE_MS
    return causes.DOWNGRADED if is_due else None


def join_timed_out(known: ClassicGroup | None, context: Context) -> Outcome:
    """Time to join is up. The first rebalance of a group goes on waiting while members keep coming."""
    if known is None or known.state is not State.PREPARING_REBALANCE:
        return NOTHING
    step = Decision(known, context)
    group = step.group
    if group.was_empty and group.member_added and group.initial_remaining_ms > 0:
        group.member_added = False
        waited, remaining = group.initial_delay_ms, group.initial_remaining_ms
        group.initial_delay_ms = min(initial_delay_ms(context), remaining)
        group.initial_remaining_ms = max(remaining - waited, 0)
        step.arm(join_key(group.group_id), group.initial_delay_ms)
    else:
        step.complete_join()
    return step.outcome()


def sync_timed_out(known: ClassicGroup | None, context: Context) -> Outcome:
    """Who joined and never asked for its assignment is out."""
    if known is None or known.state not in (State.COMPLETING_REBALANCE, State.STABLE):
        return NOTHING
    if not known.pending_syncs:
        return NOTHING
    step = Decision(known, context)
    for member_id in sorted(known.pending_syncs):
        member = known.members[member_id]
        step.cause(causes.SYNC_TIMEOUT, member)
        step.remove(member)
    step.start_rebalance()
    return step.outcome()
