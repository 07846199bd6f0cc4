"""Metrics of streams groups: warm-up tasks, their largest lag, completed warm-ups, and members with an
older topology.

Tasks and members are read for each scrape (`group_gauges`, `warmups`). A completed warm-up is counted when
a target is written in which the member is active in a task that it was warming up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, Lines, Metric, Snapshot

__all__ = ["OURS_OF_WARMUPS"]


def _by_group(counts: Callable[[Snapshot], Mapping[str, int]]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: [((label,), count) for label, count in sorted(counts(snapshot).items())]


_GROUP: Final = ("group",)

OURS_OF_WARMUPS: Final[tuple[Metric, ...]] = (
    Metric("konvene_streams_warmup_tasks", GAUGE, "Warm-up tasks of a streams group.",
           _by_group(lambda snapshot: snapshot.gauges.warmups), _GROUP),
    Metric("konvene_streams_warmup_lag_records", GAUGE,
           "Largest lag of a warm-up task, in records. No line if no member has reported offsets.",
           _by_group(lambda snapshot: snapshot.gauges.warmup_lags), _GROUP),
    Metric("konvene_streams_warmups_completed_total", COUNTER,
           "Completed warm-ups: tasks that became active on the member that was warming them up.",
           _by_group(lambda snapshot: snapshot.meter.warmed_up), _GROUP),
    Metric("konvene_streams_stale_members", GAUGE,
           "Members with an older topology epoch than the group's.",
           _by_group(lambda snapshot: snapshot.gauges.stale), _GROUP),
)  # fmt: skip
