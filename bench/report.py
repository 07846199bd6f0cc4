"""Reports of figures, as a table or as one JSON document.

Beside each figure is Kafka's, as published (bench/kafka.py) or as measured in this run, and the ratio, which
uses the measured figure if there is one.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import kafka
from bench.figures import Figure
from bench.rows import Row
from konvene import __version__

LEGEND = f"""\
Each figure is the median of its windows (lowest–highest); ↑ more is better, ↓ less is better. The ratio is
ours to Kafka's. Figures per CPU second of the broker can be compared; those per second are what was left of
the machine beside the load generator. Differences under 15 % mean nothing. "Kafka published" is Apache Kafka
{kafka.VERSION} on another day (bench/kafka.py), which never waits for the disk; "Kafka here" ran just now."""


@dataclass
class Result:
    """A row with its figures for each system, and errors."""

    row: Row
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def line(self, what: str) -> dict[str, Any]:
        """Return the line of one figure."""
        published = kafka.PUBLISHED.get(self.row.kafka, {}).get(what)
        found: dict[str, Any] = {"what": what, "kafka_published": published}
        for system, figures in self.figures.items():
            for figure in figures:
                if figure.what == what:
                    found["less_is_better"] = figure.less
                    found[system] = _values(figure)
        ours, here = found.get("konvene"), found.get("kafka")
        beside = here["median"] if here else published
        found["ratio"] = _rounded(ours["median"] / beside) if ours and beside else None
        return found

    def lines(self) -> list[dict[str, Any]]:
        whats = [figure.what for figures in self.figures.values() for figure in figures]
        return [self.line(what) for what in dict.fromkeys(whats)]


def _values(figure: Figure) -> dict[str, Any]:
    return {
        "median": _rounded(figure.median),
        "min": _rounded(min(figure.values)),
        "max": _rounded(max(figure.values)),
        "windows": [_rounded(value) for value in figure.values],
    }


def _rounded(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def document(results: Sequence[Result], began_at: str, loads: Sequence[str]) -> dict[str, Any]:
    """Return all results as a JSON document."""
    return {
        "konvene": __version__,
        "kafka": kafka.VERSION,
        "began_at": began_at,
        "ended_at": now(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "loadavg": list(loads),
        "rows": [
            {
                "row": r.row.name,
                "description": r.row.description,
                "figures": r.lines(),
                "failures": r.failures,
            }
            for r in results
        ],
    }


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def load_average() -> str:
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def table(result: Result, here: bool) -> str:
    """Return one row of the table, with a line for each figure; `here`: Kafka is measured in this run too."""
    lines = [f"{result.row.name}: {result.row.description}"]
    for line in result.lines():
        arrow = "↓" if line["less_is_better"] else "↑"
        text = f"  {line['what'] + ' ' + arrow:<44}{_shown(line.get('konvene')):>26}"
        published = line["kafka_published"]
        text += f"{'' if published is None else f'{published:,g}':>12}"
        if here:
            text += f"{_shown(line.get('kafka')):>28}"
        if line["ratio"] is not None:
            text += f"{line['ratio']:>8.2f}"
        lines.append(text.rstrip())
    lines += [f"  {system} failed: {why}" for system, why in result.failures.items()]
    return "\n".join(lines)


def heading(here: bool) -> str:
    text = f"{'':<46}{'konvene':>26}{'Kafka published':>12}"
    return text + (f"{'Kafka here':>28}" if here else "") + f"{'ratio':>8}"


def _shown(values: dict[str, Any] | None) -> str:
    if values is None:
        return ""
    low, high = _number(values["min"]), _number(values["max"])
    spread = f" ({low}–{high})" if len(values["windows"]) > 1 else ""
    return _number(values["median"]) + spread


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
