"""All metrics, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from konvene.broker.metrics.cleaner_rows import KAFKAS_OF_CLEANER, OURS_OF_CLEANER
from konvene.broker.metrics.rows import KAFKAS, KAFKAS_OF_SHARE_STATE, OURS, Metric, Seen
from konvene.broker.metrics.share_rows import KAFKAS_OF_DELIVERIES, OURS_OF_DELIVERIES
from konvene.broker.metrics.streams_rows import OURS_OF_STREAMS
from konvene.broker.metrics.tallies import Buckets
from konvene.broker.metrics.warmup_rows import OURS_OF_WARMUPS

METRICS: Final[tuple[Metric, ...]] = (
    *KAFKAS, *KAFKAS_OF_SHARE_STATE, *KAFKAS_OF_DELIVERIES, *KAFKAS_OF_CLEANER, *OURS, *OURS_OF_WARMUPS,
    *OURS_OF_DELIVERIES, *OURS_OF_CLEANER, *OURS_OF_STREAMS,
)  # fmt: skip


def read_all(seen: Seen) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], float | Buckets]]]]:
    """Each row with its lines."""
    for metric in METRICS:
        yield metric, list(metric.read(seen))
