"""The cost of rebalances: how many records arrived in partitions while they had no owner.

The table `unavailability` has when each partition had no owner; the table `lag` has, minute by minute, the
end of the partition's log. Between two such points the log is assumed to have grown evenly, so the number is
an estimate ("about"). A gap that does not lie between two points is not measured; it does not count as zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from konvene.pipeline.row import Row

__all__ = ["LAG_COLUMNS", "Cost", "Ends", "costs"]

LAG_COLUMNS = ("cluster", "topic", "partition", "commit_ms", "log_end_offset")
"""The columns of `lag` that `Ends` reads."""

Key = tuple[str, str, int, int, int]


class Ends:
    """End offsets of partitions over time, interpolated between the minutes that rows of `lag` have."""

    def __init__(self, lag: Iterable[Row]) -> None:
        """Index rows of `lag`, of any groups and in any order."""
        points: dict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
        for row in lag:
            if row["log_end_offset"] is not None:
                points[row["cluster"], row["topic"], row["partition"]][row["commit_ms"]] = row[
                    "log_end_offset"
                ]
        self._points = {key: sorted(each.items()) for key, each in points.items()}

    def __repr__(self) -> str:
        return f"<log ends of {len(self._points)} partitions>"

    def at(self, cluster: str, topic: str, partition: int, ms: int) -> float | None:
        """Return the interpolated end offset at `ms`; None before the first point and after the last."""
        points = self._points.get((cluster, topic, partition), [])
        i = bisect_right(points, (ms, 1 << 62))
        if i == 0 or (i == len(points) and points[-1][0] != ms):
            return None
        (from_ms, low), (to_ms, high) = points[i - 1], points[min(i, len(points) - 1)]
        if to_ms == from_ms:
            return low
        return low + (high - low) * (ms - from_ms) / (to_ms - from_ms)


class Cost(NamedTuple):
    """What a rebalance cost: the partitions that had no owner, and the records that arrived in them
    meanwhile."""

    stopped: int
    """Number of partitions (active tasks) that had no owner for a while."""
    lag_records: int | None
    """Estimated number of records that arrived in them meanwhile; None if it cannot be measured."""


def costs(gaps: Iterable[Row], ends: Ends) -> dict[Key, Cost]:
    """Return the cost of each rebalance, by `Rebalance.key`.

    `gaps` are rows of `unavailability`; a rebalance without gaps is not in the result."""
    stopped: Counter[Key] = Counter()
    arrived: dict[Key, float] = {}
    for gap in gaps:
        key = (gap["cluster"], gap["group_id"], gap["log_partition"], gap["base_offset"], gap["epoch"])
        stopped[key] += 1
        if gap["to_ms"] is None:
            continue
        where = (gap["cluster"], gap["topic"], gap["partition"])
        before, after = ends.at(*where, gap["from_ms"]), ends.at(*where, gap["to_ms"])
        if before is not None and after is not None:
            arrived[key] = arrived.get(key, 0.0) + max(after - before, 0.0)
    return {
        key: Cost(count, round(arrived[key]) if key in arrived else None) for key, count in stopped.items()
    }
