"""Instruments: histograms, durations, rates as Kafka computes them, and the bounded set of group labels.

Recording a value takes a fraction of a microsecond and no lock, because everything runs on the broker's
loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Final

OTHER: Final = "__other__"
"""Label that groups without one of their own share."""

LONGEST_LABEL: Final = 255
"""Groups with a longer id get no label of their own."""

WINDOW_S: Final = 30.0
WINDOWS: Final = 2
"""As Kafka's `metrics.sample.window.ms` and `metrics.num.samples`."""


class Buckets:
    """A histogram: the number of values up to each bound, and their sum."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"<{self.count} values, {self.total:g} in all>"

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound as Prometheus formats it with the number of values up to it."""
        names = [*map(_bound, self.bounds), "+Inf"]
        found, so_far = [], 0
        for name, count in zip(names, self._counts, strict=True):
            so_far += count
            found.append((name, float(so_far)))
        return found


class Durations:
    """Count, maximum and sum of durations."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def __repr__(self) -> str:
        return f"<{self.count} times, {self.total:g} in all>"

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0

    def add(self, took: float) -> None:
        self.count += 1
        self.total += took
        if took > self.longest:
            self.longest = took


def _bound(bound: float) -> str:
    return repr(float(bound))


class RateCounter:
    """A count and its rate over the last two windows of 30 seconds, as Kafka's meters compute it."""

    __slots__ = ("_windows", "count")

    def __init__(self) -> None:
        self.count = 0
        self._windows: deque[list[float]] = deque(maxlen=WINDOWS)

    def __repr__(self) -> str:
        return f"<{self.count}, of late in {len(self._windows)} windows>"

    def add(self, times: int, now_s: float) -> None:
        self.count += times
        if not self._windows or now_s - self._windows[-1][0] >= WINDOW_S:
            self._windows.append([now_s, 0])
        self._windows[-1][1] += times

    def rate(self, now_s: float) -> float:
        """Return the rate per second; the first window counts as complete."""
        late = [window for window in self._windows if now_s - window[0] < WINDOW_S * WINDOWS]
        if not late:
            return 0.0
        elapsed_s = now_s - late[0][0]
        return sum(count for _, count in late) / (elapsed_s + (WINDOW_S if elapsed_s < WINDOW_S else 0))


class GroupLabels:
    """The bounded set of groups with lines of their own: the first ones that have values.

    A deleted group frees its place. Values already counted under `OTHER` stay there.
    """

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} groups of {self._most}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._known

    def of(self, group_id: str) -> str:
        """Return the label of a group."""
        if group_id in self._known:
            return group_id
        if len(self._known) >= self._most or len(group_id) > LONGEST_LABEL:
            return OTHER
        self._known[group_id] = None
        return group_id

    def forget(self, group_id: str) -> None:
        self._known.pop(group_id, None)
