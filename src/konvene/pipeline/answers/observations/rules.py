"""What observations of a group settle about the causes of a rebalance. Pure.

Observations only remove alternatives that they refute; they never add a cause, and if they refuted all
alternatives of a cause, they contradict the log and remove none. They refute

    session-expired        of a member that was alive less than its session timeout before it was absent. It
                           was alive after an observation without it, after one with another epoch of it, and
                           at its last heartbeat, where the broker reports the age of it
    rebalance-timeout      of a member of a classic group that was absent less than its rebalance timeout
                           after the group was Stable with it, or while the group was still preparing the
                           rebalance: members that do not rejoin are removed at the end of that phase
    sync-timeout           of a member of a classic group that was seen when the timer of its generation's
                           SyncGroups was over, even if that was late by its own length
    static-member-rejoins  of a static member whose instance id was absent meanwhile: it joined again

All but the last one are about dynamic members: a static member may have another id since, with other
timeouts. That a member sent no heartbeat for long does not refute that it left: members leave, or are
removed, just before their sessions expire.

A coordinator that takes over has the state of the log: members that had departed without a record are back.
So only observations of one coordinator count, from before the rebalance's record until after it. A member of
a classic group may change its timeouts when it rejoins; if generations were not stored, they are unknown.

A session timer is armed by each heartbeat for the whole session timeout, and timers are never early. Records
that were not yet replicated when a group was described are not in the description, hence `SLACK_MS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from konvene.pipeline.answers.evidence import DEPARTURES, Generation
from konvene.pipeline.answers.observations.observation import NOT_KNOWN, Observation
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = ["settled_cause"]

SLACK_MS = 1_000
"""A change may be this much older than the first description that has it."""


def settled_cause(
    cause: Cause, rebalance: Rebalance, seen: Sequence[Observation], generation: Generation | None
) -> Cause:
    """Return a cause without the alternatives that observations refute.

    `seen`: observations of the group, oldest first; `generation`: the one that the rebalance of a classic
    group replaced, if its record is known."""
    kinds = set(cause.kinds)
    after = next((each for each in seen if each.first_offset > rebalance.base_offset), None)
    if len(kinds) == 1 or after is None:
        return cause
    before = [e for e in seen if e.next_offset <= rebalance.base_offset and e.is_continued_by(after)]
    refuted: set[str] = set()
    if cause.instance_id is None and cause.member_id is not None and kinds <= DEPARTURES:
        refuted.update(_refuted_departures(cause.member_id, rebalance, before, after, generation))
    elif causes.STATIC_MEMBER_REJOINS in kinds and _joined_again(cause, before, generation):
        refuted.add(causes.STATIC_MEMBER_REJOINS)
    left = [kind for kind in cause.kinds if kind not in refuted]
    return cause._replace(kind="|".join(left)) if left else cause


def _refuted_departures(
    member_id: str, rebalance: Rebalance, before: Sequence[Observation], after: Observation,
    generation: Generation | None,
) -> Iterator[str]:  # fmt: skip
    """Yield the causes of a member's departure that cannot be, given the observations before the record of
    the rebalance and the first one after it."""
    present = [at for at, each in enumerate(before) if member_id in each.members]
    if not present:
        return
    last, later = before[present[-1]], before[present[-1] + 1 :]
    history = before[: present[-1] + 1]
    absent = [*later, after][0]
    alive_ms = max(_alive_ms(member_id, history), default=NOT_KNOWN)
    unseen_ms = absent.end_ms - alive_ms + SLACK_MS
    if rebalance.group_type != "classic":
        timeout_ms = min(e.members[member_id].session_timeout_ms for e in history if member_id in e.members)
        if alive_ms >= 0 and unseen_ms < timeout_ms:
            yield causes.SESSION_EXPIRED
        return
    is_single = rebalance.to_epoch == rebalance.from_epoch + 1
    if is_single and any(each.state == "PreparingRebalance" for each in later):
        yield causes.REBALANCE_TIMEOUT
    known = None if generation is None else generation.members.get(member_id)
    if known is None or generation is None or not is_single:
        return
    if alive_ms >= 0 and unseen_ms < known.session_timeout_ms:
        yield causes.SESSION_EXPIRED
    prepared_ms = absent.end_ms - last.begin_ms + SLACK_MS
    if last.state == "Stable" and prepared_ms < known.rebalance_timeout_ms:
        yield causes.REBALANCE_TIMEOUT
    if _has_synced(member_id, before, generation):
        yield causes.SYNC_TIMEOUT


def _alive_ms(member_id: str, history: Sequence[Observation]) -> Iterator[int]:
    """Yield times at or after which the coordinator received a heartbeat, or another request, of a member.

    `history`: observations, of which the last one has the member."""
    for each in history:
        member = each.members.get(member_id)
        if member is not None and member.heartbeat_age_ms >= 0:
            yield each.begin_ms - member.heartbeat_age_ms
    for earlier, later in pairwise(history):
        member = later.members.get(member_id)
        if member is None or earlier.group_type != later.group_type:
            continue
        known = earlier.members.get(member_id)
        if known is None or (known.epoch != member.epoch and member.epoch >= 0):
            yield earlier.begin_ms - SLACK_MS


def _has_synced(member_id: str, before: Sequence[Observation], generation: Generation) -> bool:
    """Return True if a member was not removed when its generation had waited for its SyncGroup."""
    within = [e for e in before if e.first_offset > generation.offset and member_id in e.members]
    longest_ms = max(member.rebalance_timeout_ms for member in generation.members.values())
    return bool(within) and within[-1].begin_ms - within[0].end_ms > 2 * longest_ms


def _joined_again(cause: Cause, before: Sequence[Observation], generation: Generation | None) -> bool:
    """Return True if a static member of the generation before was absent before it joined again."""
    if generation is None or cause.instance_id is None:
        return False
    old = {key for key, each in generation.members.items() if each.instance_id == cause.instance_id}
    was_present = False
    for each in before:
        if was_present and all(m.instance_id != cause.instance_id for m in each.members.values()):
            return True
        was_present = was_present or not old.isdisjoint(each.members)
    return False
