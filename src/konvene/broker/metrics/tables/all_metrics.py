"""The table of all metrics, in the order in which a scrape returns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from konvene.broker.metrics.instruments import Buckets
from konvene.broker.metrics.tables.broker import KAFKAS, KAFKAS_OF_SHARE_STATE, OURS, Metric, Snapshot
from konvene.broker.metrics.tables.cleaner import KAFKAS_OF_CLEANER, OURS_OF_CLEANER
from konvene.broker.metrics.tables.lags import OURS_OF_LAGS
from konvene.broker.metrics.tables.placement_costs import OURS_OF_STREAMS
from konvene.broker.metrics.tables.quotas import KAFKAS_OF_QUOTAS
from konvene.broker.metrics.tables.shares import KAFKAS_OF_DELIVERIES, OURS_OF_DELIVERIES
from konvene.broker.metrics.tables.warmups import OURS_OF_WARMUPS

METRICS: Final[tuple[Metric, ...]] = (
    *KAFKAS, *KAFKAS_OF_SHARE_STATE, *KAFKAS_OF_DELIVERIES, *KAFKAS_OF_CLEANER, *KAFKAS_OF_QUOTAS,
    *OURS, *OURS_OF_LAGS, *OURS_OF_WARMUPS, *OURS_OF_DELIVERIES, *OURS_OF_CLEANER, *OURS_OF_STREAMS,
)  # fmt: skip


def read_all(snapshot: Snapshot) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], float | Buckets]]]]:
    """Yield each metric with its lines: label values, and a number or a histogram."""
    for metric in METRICS:
        yield metric, list(metric.read(snapshot))
