"""The rows of streams groups: tasks that warm up, how far the last of them has to go, and who is stale.

Warm-ups and members are looked at when somebody asks, as groups are (`census`, `warmups`). How many warm-ups
came to their end is counted where targets are written: the member that was to warm up a task is to be active
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, Lines, Metric, Seen

__all__ = ["OURS_OF_WARMUPS"]


def _by_group(counts: Callable[[Seen], Mapping[str, int]]) -> Callable[[Seen], Lines]:
    return lambda seen: [((label,), count) for label, count in sorted(counts(seen).items())]


_GROUP: Final = ("group",)

OURS_OF_WARMUPS: Final[tuple[Metric, ...]] = (
    Metric("konvene_streams_warmup_tasks", GAUGE, "Tasks of a streams group that warm up.",
           _by_group(lambda seen: seen.census.warmups), _GROUP),
    Metric("konvene_streams_warmup_lag_records", GAUGE,
           "How far the warm-up is behind that is furthest behind. No line where nobody has said it.",
           _by_group(lambda seen: seen.census.warmup_lags), _GROUP),
    Metric("konvene_streams_warmups_completed_total", COUNTER,
           "Tasks that were to warm up on a member, and are to be active there since.",
           _by_group(lambda seen: seen.meter.warmed_up), _GROUP),
    Metric("konvene_streams_stale_members", GAUGE,
           "Members that run an older topology than the group's.",
           _by_group(lambda seen: seen.census.stale), _GROUP),
)  # fmt: skip
