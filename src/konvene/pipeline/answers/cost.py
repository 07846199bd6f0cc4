"""What rebalances cost: how many records arrived in partitions while nobody had them.

The table `unavailability` says which partition had no owner from when to when; the table `lag` says, minute
by minute, where the partition's log ended. Between two such points the log is taken to have grown evenly,
so the number is an estimate ("about"), and where a gap is not between two points there is none: not zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["LAG_COLUMNS", "Cost", "Ends", "costs"]

LAG_COLUMNS = ("cluster", "topic", "partition", "commit_ms", "log_end_offset")
"""What `Ends` needs of that table."""

Row = Mapping[str, Any]
Place = tuple[str, str, int, int, int]


class Ends:
    """Where the log of each partition ended, and when."""

    def __init__(self, lag: Iterable[Row]) -> None:
        """`lag`: rows of that table, of any groups and in any order."""
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
        """Where it ended then; None before the first point and after the last."""
        points = self._points.get((cluster, topic, partition), [])
        i = bisect_right(points, (ms, 1 << 62))
        if i == 0 or (i == len(points) and points[-1][0] != ms):
            return None
        (from_ms, low), (to_ms, high) = points[i - 1], points[min(i, len(points) - 1)]
        if to_ms == from_ms:
            return low
        return low + (high - low) * (ms - from_ms) / (to_ms - from_ms)


class Cost(NamedTuple):
    """What a rebalance cost, beside the time that its row has."""

    stopped: int
    """How many partitions (active tasks) had no owner for a while."""
    waiting: int | None
    """About how many records arrived in them meanwhile; None: that cannot be measured."""


def costs(gaps: Iterable[Row], ends: Ends) -> dict[Place, Cost]:
    """By rebalance (`Rebalance.place`). A rebalance without gaps is not in it.

    `gaps`: rows of `unavailability`."""
    stopped: Counter[Place] = Counter()
    arrived: dict[Place, float] = {}
    for gap in gaps:
        place = (gap["cluster"], gap["group_id"], gap["log_partition"], gap["base_offset"], gap["epoch"])
        stopped[place] += 1
        if gap["to_ms"] is None:
            continue
        where = (gap["cluster"], gap["topic"], gap["partition"])
        before, after = ends.at(*where, gap["from_ms"]), ends.at(*where, gap["to_ms"])
        if before is not None and after is not None:
            arrived[place] = arrived.get(place, 0.0) + max(after - before, 0.0)
    return {
        place: Cost(count, round(arrived[place]) if place in arrived else None)
        for place, count in stopped.items()
    }
