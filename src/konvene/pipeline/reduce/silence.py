"""How long units may have had an owner that had already stopped: until the owner's session expired.

A log does not record heartbeats. A coordinator removes a member that sent none for its session timeout, so
the units of such a member may have been without a reader for up to that long before the record that shows its
removal. How long they were is unknown: a process that was killed right before its next heartbeat was silent
for one heartbeat interval less, and one that was only cut off may have read on. So there are only bounds:

    silent_units  units that a member owned until its session expired, or may have expired
    silent_ms     the sum over these units of the session timeout, or of the time since the member was
                  assigned the unit if that is shorter, up to the start of the rebalance: the time from there
                  on is `unavailable_ms`. Unknown if a session timeout is

A log has the session timeout of members of the classic protocol, in their own records. That of other members
is a config of the group: the audit has it if the session expired for certain.

A coordinator that takes over a log starts all sessions again. No record shows when, so after a failover a
member may have been silent for longer than this bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from konvene.pipeline.reduce.diagnosis import Diagnosis
from konvene.pipeline.reduce.ownership import Tenure
from konvene.pipeline.reduce.position import NOT_KNOWN, OBSERVED
from konvene.shard import causes

__all__ = ["NO_SILENCE", "UNKNOWN_SILENCE", "Held", "Silence", "silence_of"]

_OTHER_DEPARTURES = {
    causes.MEMBER_LEFT, causes.REBALANCE_TIMEOUT, causes.SYNC_TIMEOUT, causes.REMOVED_BY_ADMIN, causes.FENCED,
}  # fmt: skip
"""Causes of departures of members that were in contact with the coordinator, or whose units were revoked."""


class Held(NamedTuple):
    """A unit that a member owned until it departed."""

    tenure: Tenure
    until_ms: int
    """Time of the record that shows its departure."""
    session_timeout_ms: int = NOT_KNOWN
    """The member's own, if its record has it."""


class Silence(NamedTuple):
    """The columns of a rebalance about members whose sessions expired."""

    units: int = 0
    ms: int | None = 0
    session_timeout_ms: int | None = None
    """The longest of these members; None if it is unknown or there are none."""


NO_SILENCE = Silence()
UNKNOWN_SILENCE = Silence(0, None)


def silence_of(held: Iterable[Held], diagnosis: Diagnosis, start_ms: int | None, *, classic: bool) -> Silence:
    """Return the bounds for a rebalance with these causes.

    `held` are the units of the members that departed; `start_ms` is the start of the rebalance; `classic`:
    the group is a classic one, whose log does not have the causes of superseded generations."""
    expired_ms = _expiries(diagnosis)
    accounted = diagnosis.evidence == OBSERVED and not diagnosis.left_out and not classic
    count, total_ms, longest_ms = 0, 0, NOT_KNOWN
    is_known = True
    for each in held:
        member_id = each.tenure.identity.member_id
        if member_id not in expired_ms and (accounted or _departed_otherwise(diagnosis, member_id)):
            continue
        count += 1
        timeout_ms = each.session_timeout_ms if each.session_timeout_ms >= 0 else diagnosis.session_timeout_ms
        is_known = is_known and timeout_ms >= 0
        at_ms = expired_ms.get(member_id, NOT_KNOWN)
        at_ms = at_ms if at_ms >= 0 else each.until_ms
        end_ms = at_ms if start_ms is None else min(at_ms, start_ms)
        total_ms += max(end_ms - max(each.tenure.at.ms, at_ms - timeout_ms), 0)
        longest_ms = max(longest_ms, timeout_ms)
    if not count:
        return NO_SILENCE
    return Silence(count, total_ms, longest_ms) if is_known else Silence(count, None)


def _expiries(diagnosis: Diagnosis) -> Mapping[str, int]:
    """Return the members whose sessions expired or may have expired, with the time of that event or -1."""
    return {
        cause["member_id"]: cause["at_ms"]
        for cause in diagnosis.causes
        if cause["member_id"] is not None
        and {causes.SESSION_EXPIRED, causes.MEMBER_DEPARTED} & set(cause["kind"].split("|"))
    }


def _departed_otherwise(diagnosis: Diagnosis, member_id: str) -> bool:
    return any(
        cause["member_id"] == member_id and set(cause["kind"].split("|")) <= _OTHER_DEPARTURES
        for cause in diagnosis.causes
    )
