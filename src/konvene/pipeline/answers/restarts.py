"""Which rebalances were members that went and came back: one client that is gone and joins again soon after.

A member of another id is the same client where the client id and the host agree, or, if no such one came,
where the client id does and only one client of that id was missing. A static member that came back is none:
it made no rebalance. A follow-up of the cooperative assignors belongs to the rebalance before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = ["BACK_WITHIN_MS", "Restart", "by_restarts", "restarts"]

BACK_WITHIN_MS = 30_000
"""Who is away for longer is not taken to be restarted."""

WENT = {causes.MEMBER_LEFT, causes.SESSION_EXPIRED, causes.MEMBER_DEPARTED, causes.REBALANCE_TIMEOUT}


class Restart(NamedTuple):
    """A client that went and came back."""

    client_id: str
    client_host: str
    went: Rebalance
    came: Rebalance
    away_ms: int
    kind: str
    """How it went, in the words of `shard.causes`; more than one where the log cannot tell."""


class _Gone(NamedTuple):
    at_ms: int
    cause: Cause
    rebalance: Rebalance


def restarts(told: Sequence[Rebalance], within_ms: int = BACK_WITHIN_MS) -> list[Restart]:
    """Those of one group. `told`: its rebalances, oldest first."""
    gone: list[_Gone] = []
    found: list[Restart] = []
    for rebalance in told:
        for cause in rebalance.all_causes:
            at_ms = cause.at_ms if cause.at_ms >= 0 else rebalance.at_ms
            if set(cause.kinds) & WENT and cause.client_id and cause.instance_id is None:
                gone.append(_Gone(at_ms, cause, rebalance))
        for cause in rebalance.all_causes:
            if cause.kind != causes.MEMBER_JOINED or not cause.client_id or cause.instance_id is not None:
                continue
            at_ms = cause.at_ms if cause.at_ms >= 0 else rebalance.at_ms
            gone = [each for each in gone if at_ms - each.at_ms <= within_ms]
            before = _match(gone, cause)
            if before is not None:
                gone.remove(before)
                away_ms = max(at_ms - before.at_ms, 0)
                host = cause.client_host or ""
                found.append(
                    Restart(cause.client_id, host, before.rebalance, rebalance, away_ms, before.cause.kind)
                )
    return found


def _match(gone: Sequence[_Gone], cause: Cause) -> _Gone | None:
    same = [each for each in gone if each.cause.client_id == cause.client_id]
    here = [each for each in same if each.cause.client_host == cause.client_host]
    if here:
        return here[0]
    return same[0] if len(same) == 1 else None


def by_restarts(told: Sequence[Rebalance], found: Sequence[Restart]) -> list[Rebalance]:
    """The rebalances that would not have been without these restarts: every cause of theirs is one."""
    went = {(r.went.place, r.client_id) for r in found}
    came = {(r.came.place, r.client_id) for r in found}
    chosen: list[Rebalance] = []
    for before, rebalance in zip([None, *told], told, strict=False):
        if rebalance.causes_left_out:
            continue
        follows = before is not None and bool(chosen) and chosen[-1] is before
        if all(
            (rebalance.place, cause.client_id) in (came if cause.kind == causes.MEMBER_JOINED else went)
            or (follows and cause.kind == causes.COOPERATIVE_FOLLOW_UP)
            for cause in rebalance.all_causes
        ):
            chosen.append(rebalance)
    return chosen
