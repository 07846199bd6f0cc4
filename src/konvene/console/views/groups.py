"""The list of all groups: state, members, lag, the last rebalance, and rebalances per hour."""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.admin.groups import GroupListing
from konvene.console.rebalances import key_of
from konvene.console.tail import wall_clock_ms
from konvene.console.views.view import Row, Sections, View
from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.sentences import LOG_ENDS, sentence
from konvene.records.classic import GroupMetadataValue

__all__ = ["GroupsView", "hourly", "is_open", "last_rebalance", "live_sentence"]

HOURS = 24
HOUR_MS = 3_600_000
MAX_LAGS = 500
"""The lag is shown of as many groups, by id; describing the share groups of a large cluster takes long."""


class GroupsView(View):
    """The view `groups`."""

    async def build(self) -> Sections:
        listed = await self.watch.groups()
        rows = {}
        for n, group in enumerate(listed):
            lag = await self.watch.lag(group) if n < MAX_LAGS else None
            rows[group.group_id] = self._row(group, lag)
        return {"facts": self.facts(), "groups": rows}

    def _row(self, group: GroupListing, lag: int | None) -> Row:
        history = self.watch.tail.history
        hours = hourly(history.times_of(group.group_id), wall_clock_ms())
        return {
            "id": group.group_id, "type": group.type, "state": group.state,
            "members": self._member_count(group.group_id), "lag": lag,
            "last": last_rebalance(history.last_of(group.group_id)),
            "hours": hours, "rebalances": sum(hours),
        }  # fmt: skip

    def _member_count(self, group_id: str) -> int | None:
        if self.watch.tail.state.state != "live":
            return None
        group = self.watch.tail.history.group(group_id)
        if group is None:
            return None if self.watch.tail.history.version_of(group_id) else 0
        members: Iterable[object] = group.members
        return len(list(members)) if isinstance(group, GroupMetadataValue) else len(group.members)


def hourly(times_ms: Iterable[int], now_ms: int) -> list[int]:
    """Count times by hour for the last 24 hours, oldest first; the last hour ends at `now_ms`."""
    counts = [0] * HOURS
    for ms in times_ms:
        hours_ago = (now_ms - ms) // HOUR_MS
        if ms >= 0 and 0 <= hours_ago < HOURS:
            counts[HOURS - 1 - hours_ago] += 1
    return counts


def is_open(rebalance: Rebalance) -> bool:
    """Return True if the rebalance is in progress."""
    return rebalance.end_ms is None and rebalance.state in ("Assigning", "Reconciling")


def live_sentence(rebalance: Rebalance, cost: Cost | None = None) -> str:
    """Return the sentence of a rebalance, which is in progress if its end is not in the log yet."""
    return sentence(rebalance, cost, unfinished="in progress" if is_open(rebalance) else LOG_ENDS)


def last_rebalance(rebalance: Rebalance | None) -> Row | None:
    """Return the summary of a group's last rebalance."""
    if rebalance is None:
        return None
    return {
        "key": key_of(rebalance), "at_ms": rebalance.at_ms, "epoch": rebalance.to_epoch,
        "cause": rebalance.cause,
        "client": rebalance.instance_id or rebalance.client_id or rebalance.member_id,
        "sentence": live_sentence(rebalance), "evidence": rebalance.evidence, "open": is_open(rebalance),
    }  # fmt: skip
