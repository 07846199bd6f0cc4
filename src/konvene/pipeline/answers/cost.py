"""The cost of rebalances: which partitions had no owner, and how many records arrived in them meanwhile.

The table `unavailability` has when each partition had no owner. Such a gap can begin before a rebalance or
last beyond its end, when one rebalance interrupts another; only its part within the rebalance counts here, as
in the column `unavailable_ms` (`konvene.pipeline.reduce.open_rebalance`). A gap that a rebalance left open
counts for it until the partition has an owner again. So the parts of one rebalance add up to that column, and
never to more than partitions × time.

The table `lag` has, minute by minute, the end of the partition's log. Between two such points the log is
assumed to have grown evenly, so the number of records is an estimate ("about"). A gap that does not lie
between two points is not measured; it does not count as zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from konvene.pipeline.row import Row

if TYPE_CHECKING:
    from konvene.pipeline.answers.rebalance import Rebalance

__all__ = ["LAG_COLUMNS", "Cost", "Ends", "GapPart", "costs", "gap_part"]

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


class GapPart(NamedTuple):
    """The part of a gap, a row of `unavailability`, that lies within a rebalance."""

    gap: Row
    from_ms: int
    to_ms: int | None
    """None if neither the gap nor the rebalance ended before the log did."""

    @property
    def ms(self) -> int:
        """Length of the part; 0 if it has not ended."""
        return 0 if self.to_ms is None else self.to_ms - self.from_ms


def gap_part(gap: Row, r: Rebalance) -> GapPart | None:
    """Return the part of a gap that counts as unavailability of this rebalance; None if there is none.

    A gap of another group has no part in it, nor has one that is still open when the rebalance completes,
    except if the rebalance left it open (`left_open_by`): it then counts until its end, and not for later
    rebalances. Without a known start of the rebalance nothing is known."""
    if (gap["cluster"], gap["group_id"], gap["log_partition"]) != (r.cluster, r.group_id, r.log_partition):
        return None
    if r.start_ms is None:
        return None
    left_open_by = gap.get("left_open_by")  # Absent in the tables of earlier releases.
    if left_open_by is not None and r.to_epoch >= left_open_by:
        if r.to_epoch > left_open_by or not gap["from_ms"] <= r.until_ms < gap["to_ms"]:
            return None
        return GapPart(gap, max(gap["from_ms"], r.start_ms), gap["to_ms"])
    if r.converged and (gap["to_ms"] is None or gap["to_ms"] > r.until_ms):
        return None
    known = [ms for ms in (gap["to_ms"], r.end_ms) if ms is not None]
    part = GapPart(gap, max(gap["from_ms"], r.start_ms), min(known, default=None))
    return part if part.to_ms is None or part.ms > 0 else None


def costs(rebalances: Iterable[Rebalance], gaps: Iterable[Row], ends: Ends) -> dict[Key, Cost]:
    """Return the cost of each of these rebalances, by `Rebalance.key`.

    `gaps` are rows of `unavailability`; a rebalance in which no partition was without an owner is not in the
    result."""
    by_group = _by_group(rebalances)
    stopped: dict[Key, set[tuple[str, int]]] = defaultdict(set)
    arrived: dict[Key, float] = {}
    for gap in gaps:
        for r in _overlapping(by_group.get((gap["cluster"], gap["group_id"]), _NONE), gap):
            part = gap_part(gap, r)
            if part is None:
                continue
            stopped[r.key].add((gap["topic"], gap["partition"]))
            if part.to_ms is None:
                continue
            where = (gap["cluster"], gap["topic"], gap["partition"])
            before, after = ends.at(*where, part.from_ms), ends.at(*where, part.to_ms)
            if before is not None and after is not None:
                arrived[r.key] = arrived.get(r.key, 0.0) + max(after - before, 0.0)
    return {
        key: Cost(len(units), round(arrived[key]) if key in arrived else None)
        for key, units in stopped.items()
    }


class _InOrder(NamedTuple):
    """Rebalances of one group with a known start, in the order of their starts."""

    rebalances: Sequence[Rebalance]
    starts: Sequence[int]
    ends: Sequence[float]
    """For each rebalance, the latest end of it and of those before it; infinite if one has not ended."""


_NONE = _InOrder((), (), ())


def _by_group(rebalances: Iterable[Rebalance]) -> dict[tuple[str, str], _InOrder]:
    found: dict[tuple[str, str], list[Rebalance]] = defaultdict(list)
    for r in rebalances:
        if r.start_ms is not None:
            found[r.cluster, r.group_id].append(r)
    indexed = {}
    for key, some in found.items():
        some.sort(key=lambda r: r.at_ms)
        latest = accumulate((float("inf") if r.end_ms is None else r.end_ms for r in some), max)
        indexed[key] = _InOrder(some, [r.at_ms for r in some], list(latest))
    return indexed


def _overlapping(group: _InOrder, gap: Row) -> Iterable[Rebalance]:
    """Yield the rebalances that can have a part of the gap."""
    last = len(group.starts) if gap["to_ms"] is None else bisect_right(group.starts, gap["to_ms"])
    for i in range(last - 1, -1, -1):
        if group.ends[i] < gap["from_ms"]:
            return
        yield group.rebalances[i]
