"""Plot the available partitions of a group over time, with a mark for each rebalance.

One panel per plan, for its first seed, all with the same axes. It needs matplotlib, from the extra `plot`.
The same outcomes give the same picture, in SVG byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from konvene.sim.runs.meter import Outcome
from konvene.sim.runs.what_if import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "plot", "save"]

FORMATS = (".svg", ".png")

WIDTH, PANEL, BOTTOM = 9.0, 1.7, 0.55
"""Inches: width of the picture, height of a panel, height below the last panel."""

POINTS = 800
"""Maximum number of time slots; of the changes in one slot the lowest value is drawn."""

SURFACE, INK, SOFT_INK, GRID = "#fcfcfb", "#0b0b0b", "#52514e", "#e4e3df"
LINE, MARK = "#2a78d6", "#eb6834"
STYLE: dict[Any, Any] = {"svg.hashsalt": "konvene", "svg.fonttype": "none", "font.size": 9}


def plot(file: Path, shown: Sequence[tuple[str, Plan, Outcome]]) -> None:
    """Draw one panel for each (title, plan, outcome), and write the picture to `file`.

    Raises ImportError without matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        height = BOTTOM + PANEL * len(shown)
        figure = Figure(figsize=(WIDTH, height), dpi=120, facecolor=SURFACE)
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        figure.subplots_adjust(
            left=0.75 / WIDTH,
            right=1 - 0.25 / WIDTH,
            bottom=BOTTOM / height,
            top=1 - 0.4 / height,
            hspace=0.5,
        )
        figure.text(
            0.12 / WIDTH, 0.5, "partitions that have an owner", color=SOFT_INK, rotation=90, va="center"
        )
        for panel, (title, plan, outcome) in zip(panels, shown, strict=True):
            _panel(panel, title, plan, outcome)
        panels[-1].set_xlabel("minutes", color=SOFT_INK)
        save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Write a figure to a file, without date and version of matplotlib, so that its bytes are
    reproducible."""
    metadata = {"Date": None, "Creator": "konvene"} if file.suffix == ".svg" else {"Software": "konvene"}
    figure.savefig(file, facecolor=SURFACE, metadata=metadata)


def _panel(panel: Axes, title: str, plan: Plan, outcome: Outcome) -> None:
    xs, ys = _steps(plan, outcome)
    panel.set_facecolor(SURFACE)
    panel.fill_between(xs, ys, step="post", color=LINE, alpha=0.15, linewidth=0)
    panel.step(xs, ys, where="post", color=LINE, linewidth=1.5)
    minutes = [r.at_s / 60 for r in outcome.rebalances]
    panel.plot(
        minutes, [-9] * len(minutes), linestyle="none", marker="|", markersize=7, color=MARK, clip_on=False
    )
    panel.set_ylim(-16, 105)
    panel.set_xlim(0, plan.minutes)
    panel.set_yticks([0, 50, 100], ["0 %", "50 %", "100 %"])
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(colors=SOFT_INK, length=0)
    for side in panel.spines.values():
        side.set_visible(False)
    lost = 100 * outcome.unavailable_s / (plan.partitions * plan.minutes * 60)
    count = len(outcome.rebalances)
    panel.set_title(title, loc="left", color=INK, fontweight="bold")
    panel.set_title(
        f"{count} {'rebalance' if count == 1 else 'rebalances'} (marks), {lost:.2f} % unavailable",
        loc="right", color=SOFT_INK,
    )  # fmt: skip


def _steps(plan: Plan, outcome: Outcome) -> tuple[list[float], list[float]]:
    """Return the curve of an outcome: times in minutes, and the percentage of available partitions from each
    of these times on.

    Changes that are too close for the width of the plot are merged, with the lowest percentage."""
    slot_s = plan.minutes * 60 / POINTS
    changes: list[tuple[float, int]] = []
    for at_s, changes_in_slot in groupby(
        outcome.timeline, key=lambda change: int(change[0] / slot_s) * slot_s
    ):
        missing = [count for _, count in changes_in_slot]
        changes += [(at_s, max(missing)), (at_s + slot_s, missing[-1])]
    changes.append((plan.minutes * 60, changes[-1][1] if changes else 0))
    return (
        [at_s / 60 for at_s, _ in changes],
        [100 * (1 - missing / plan.partitions) for _, missing in changes],
    )
