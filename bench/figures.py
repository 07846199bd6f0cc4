"""Figures: named results of a benchmark with one value per window."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.drive import Window
from bench.systems import TICK_S

PER_CPU_S = "requests per CPU s"
PER_S = "requests per s"
MIB_PER_CPU_S = "MiB per CPU s"
MIB_PER_S = "MiB per s"
RSS = "RSS, MiB"


class Figure(NamedTuple):
    """A measured quantity, reported as the median of its values; `less` means that lower is better."""

    what: str
    values: tuple[float, ...]
    less: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def less(what: str, values: Iterable[float]) -> Figure:
    """Return a figure of which lower is better."""
    return Figure(what, tuple(values), less=True)


def rates(windows: Sequence[Window]) -> list[Figure]:
    """Return requests (and record bytes, if any) per CPU second of the broker and per second."""

    def per(amounts: Iterable[float], seconds: Iterable[float]) -> tuple[float, ...]:
        return tuple(a / max(s, TICK_S) for a, s in zip(amounts, seconds, strict=True))

    cpu = [w.cpu_s for w in windows]
    wall = [w.wall_s for w in windows]
    requests = [w.requests for w in windows]
    found = [Figure(PER_CPU_S, per(requests, cpu)), Figure(PER_S, per(requests, wall))]
    mib = [w.size / (1 << 20) for w in windows]
    if any(mib):
        found += [Figure(MIB_PER_CPU_S, per(mib, cpu)), Figure(MIB_PER_S, per(mib, wall))]
    return found


def at_rank(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile."""
    return sorted(values)[int(share * (len(values) - 1))]
