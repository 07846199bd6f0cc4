"""Histograms, durations, rates as Kafka computes them, and the bounded sets of group and topic labels.

Recording a value takes a fraction of a microsecond and no lock, because everything runs on the broker's
loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

OTHER: Final = "__other__"
"""Label of all groups without a label of their own."""

MAX_LABEL_LENGTH: Final = 255
"""Groups with a longer id get no label of their own."""

PartitionKey = tuple[str, str, int]
"""Group, topic and partition."""

WINDOW_S: Final = 30.0
WINDOWS: Final = 2
"""Length of a window of a rate, and number of windows, as by Kafka's `metrics.sample.window.ms` and
`metrics.num.samples`."""


class Buckets:
    """A histogram: counts of values by upper bound, and the sum of all values."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"<{self.count} values, {self.total:g} in total>"

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound, formatted for Prometheus, with the number of values not above it."""
        names = [*map(_bound, self.bounds), "+Inf"]
        rows, so_far = [], 0
        for name, count in zip(names, self._counts, strict=True):
            so_far += count
            rows.append((name, float(so_far)))
        return rows


class Durations:
    """Statistics of durations in seconds: count, sum, maximum and average."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def __repr__(self) -> str:
        return f"<{self.count} durations, {self.total:g} in total>"

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0

    def add(self, duration: float) -> None:
        self.count += 1
        self.total += duration
        if duration > self.longest:
            self.longest = duration


def _bound(bound: float) -> str:
    return repr(float(bound))


class RateCounter:
    """A counter that also has a rate over the last two windows of 30 seconds, as Kafka's `Meter` has."""

    __slots__ = ("_windows", "count")

    def __init__(self) -> None:
        self.count = 0
        self._windows: deque[list[float]] = deque(maxlen=WINDOWS)

    def __repr__(self) -> str:
        return f"<{self.count} in {len(self._windows)} windows>"

    def add(self, times: int, now_s: float) -> None:
        self.count += times
        if not self._windows or now_s - self._windows[-1][0] >= WINDOW_S:
            self._windows.append([now_s, 0])
        self._windows[-1][1] += times

    def rate(self, now_s: float) -> float:
        """Return the rate per second. A single window counts as complete, even if it has just begun."""
        recent = [window for window in self._windows if now_s - window[0] < WINDOW_S * WINDOWS]
        if not recent:
            return 0.0
        elapsed_s = now_s - recent[0][0]
        return sum(count for _, count in recent) / (elapsed_s + (WINDOW_S if elapsed_s < WINDOW_S else 0))


class GroupLabels:
    """The groups that have metric lines of their own: the first `limit` ones that have values.

    All other groups share the label `OTHER`. A deleted group frees its label for another one, but values
    already counted under `OTHER` stay there.
    """

    __slots__ = ("_labels", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labels: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<{len(self._labels)} groups of {self._limit}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._labels

    def of(self, group_id: str) -> str:
        """Return the label of a group: its id, given out now if one is free, else `OTHER`."""
        if group_id in self._labels:
            return group_id
        if len(self._labels) >= self._limit or len(group_id) > MAX_LABEL_LENGTH:
            return OTHER
        self._labels[group_id] = None
        return group_id

    def of_idle(self, group_id: str) -> str:
        """Return the label of a group without members.

        Such groups use at most half of the labels, so that enough are left for groups that are in use."""
        if group_id not in self._labels and len(self._labels) >= self._limit // 2:
            return OTHER
        return self.of(group_id)

    def forget(self, group_id: str) -> None:
        self._labels.pop(group_id, None)


class TopicLabels:
    """The pairs of group and topic that have metric lines of their own: the first `limit` ones.

    The other topics of a group share the label `OTHER`."""

    __slots__ = ("_labels", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labels: dict[tuple[str, str], None] = {}

    def __repr__(self) -> str:
        return f"<{len(self._labels)} topics of {self._limit}>"

    def of(self, group_id: str, topic: str) -> str:
        """Return the label of a topic: its name, if it has a label or one is free, else `OTHER`."""
        if (group_id, topic) not in self._labels:
            if len(self._labels) >= self._limit:
                return OTHER
            self._labels[group_id, topic] = None
        return topic

    def retain(self, pairs: Collection[tuple[str, str]]) -> None:
        """Release the labels of all pairs but these."""
        self._labels = {pair: None for pair in self._labels if pair in pairs}
