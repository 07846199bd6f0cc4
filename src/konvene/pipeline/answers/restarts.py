"""Client restarts: a member departs and the same client joins again soon after.

A member with another id is the same client if the client id and the host agree or, if there is no such
member, if the client id agrees and only one departed client has it. Static members that rejoin are not
restarts: they trigger no rebalance. A cooperative follow-up belongs to the rebalance before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.shard import causes

__all__ = ["BACK_WITHIN_MS", "Restart", "find_restarts", "rebalances_of_restarts"]

BACK_WITHIN_MS = 30_000
"""A client that is away for longer does not count as restarted."""

DEPARTURES = {causes.MEMBER_LEFT, causes.SESSION_EXPIRED, causes.MEMBER_DEPARTED, causes.REBALANCE_TIMEOUT}


class Restart(NamedTuple):
    """A client that departed and joined again, with the rebalances in which it did."""

    client_id: str
    client_host: str
    left_in: Rebalance
    rejoined_in: Rebalance
    away_ms: int
    kind: str
    """How the client departed (`shard.causes`); several kinds joined by `|` where the log cannot distinguish
    them."""


class _Departure(NamedTuple):
    at_ms: int
    cause: Cause
    rebalance: Rebalance


def find_restarts(rebalances: Sequence[Rebalance], within_ms: int = BACK_WITHIN_MS) -> list[Restart]:
    """Find the restarts in one group's rebalances, which are sorted oldest first.

    `within_ms` is the longest absence that counts as a restart."""
    departed: list[_Departure] = []
    found: list[Restart] = []
    for rebalance in rebalances:
        for cause in rebalance.all_causes:
            at_ms = cause.at_ms if cause.at_ms >= 0 else rebalance.at_ms
            if set(cause.kinds) & DEPARTURES and cause.client_id and cause.instance_id is None:
                departed.append(_Departure(at_ms, cause, rebalance))
        for cause in rebalance.all_causes:
            if cause.kind != causes.MEMBER_JOINED or not cause.client_id or cause.instance_id is not None:
                continue
            at_ms = cause.at_ms if cause.at_ms >= 0 else rebalance.at_ms
            departed = [departure for departure in departed if at_ms - departure.at_ms <= within_ms]
            before = _match(departed, cause)
            if before is not None:
                departed.remove(before)
                away_ms = max(at_ms - before.at_ms, 0)
                host = cause.client_host or ""
                found.append(
                    Restart(cause.client_id, host, before.rebalance, rebalance, away_ms, before.cause.kind)
                )
    return found


def _match(departed: Sequence[_Departure], cause: Cause) -> _Departure | None:
    same_client = [departure for departure in departed if departure.cause.client_id == cause.client_id]
    same_host = [departure for departure in same_client if departure.cause.client_host == cause.client_host]
    if same_host:
        return same_host[0]
    return same_client[0] if len(same_client) == 1 else None


def rebalances_of_restarts(rebalances: Sequence[Rebalance], found: Sequence[Restart]) -> list[Rebalance]:
    """Return the rebalances that only restarts triggered, including their cooperative follow-ups."""
    departures = {(r.left_in.key, r.client_id) for r in found}
    rejoins = {(r.rejoined_in.key, r.client_id) for r in found}
    chosen: list[Rebalance] = []
    for before, rebalance in zip([None, *rebalances], rebalances, strict=False):
        if rebalance.causes_left_out:
            continue
        follows = before is not None and bool(chosen) and chosen[-1] is before
        if all(
            (rebalance.key, cause.client_id)
            in (rejoins if cause.kind == causes.MEMBER_JOINED else departures)
            or (follows and cause.kind == causes.COOPERATIVE_FOLLOW_UP)
            for cause in rebalance.all_causes
        ):
            chosen.append(rebalance)
    return chosen
