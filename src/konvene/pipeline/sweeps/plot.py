"""Plot of a sweep: for each metric the runs of each plan, as a box and as points. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from konvene.sim.runs.plot import GRID, INK, LINE, MARK, SOFT_INK, STYLE, SURFACE, save

__all__ = ["plot"]

WIDTH, ROW, HEAD = 9.0, 0.28, 0.75
"""Sizes in inches: the total width, a plan within a panel, and a panel without its plans."""


def plot(file: Path, metrics: pa.Table) -> None:
    """Plot rows of `sim_metric`. The same rows give a byte-identical SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    panels: dict[str, dict[str, list[float]]] = {}
    for row in metrics.to_pylist():
        name = f"{row['metric']} ({row['unit']})" if row["unit"] else row["metric"]
        panels.setdefault(name, {}).setdefault(row["plan"], []).append(row["value"])
    heights = [HEAD + ROW * len(plans) for plans in panels.values()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, sum(heights) or 1), dpi=120, facecolor=SURFACE, layout="constrained")
        axes = figure.subplots(len(panels) or 1, 1, squeeze=False, height_ratios=heights or [1])[:, 0]
        for panel, (name, plans) in zip(axes, panels.items(), strict=False):
            _panel(panel, name, plans)
        save(figure, file)


def _panel(panel: object, name: str, plans: dict[str, list[float]]) -> None:
    from matplotlib.axes import Axes

    assert isinstance(panel, Axes)
    titles = list(plans)[::-1]
    panel.boxplot(
        [plans[title] for title in titles], orientation="horizontal", widths=0.5, showfliers=False,
        whis=(1, 99),        boxprops={"color": LINE}, whiskerprops={"color": LINE}, capprops={"color": LINE},
        medianprops={"color": LINE, "linewidth": 2},
    )  # fmt: skip
    for at, title in enumerate(titles, 1):
        panel.plot(plans[title], [at] * len(plans[title]), "|", color=MARK, alpha=0.4, markersize=7)
    panel.set_yticks(range(1, len(titles) + 1), titles, color=SOFT_INK)
    panel.set_title(name, loc="left", color=INK, fontsize=9)
    panel.set_facecolor(SURFACE)
    panel.grid(axis="x", color=GRID)
    panel.set_xlim(left=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
