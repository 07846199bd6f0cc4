"""A rebalance drawn as text: a lane for each member, time from left to right.

    ann (ann-a80d…)   6 → 4   ━━━━▒▒▒▒▒▒╌╌╌╌╌✓━━━━
    bob (bob-a334…)   6 → 0   ━━━━×
    cas (cas-8b06…)   0 → 8       +╌╌╌╌╌╌╌╌╌╌✓━━━━

Nothing is drawn if the log does not record when the rebalance began or ended. `PLAIN` is for ASCII-only
terminals.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.groups.history import duration
from konvene.pipeline.answers.trace import MemberTrace, RebalanceTrace
from konvene.plurals import counted

__all__ = ["DRAWN", "PLAIN", "Letters", "legend", "timeline"]

MAX_NAME_LENGTH = 34


class Letters(NamedTuple):
    settled: str
    revoking: str
    waiting: str
    joined: str
    departed: str
    converged: str
    arrow: str
    dots: str


DRAWN = Letters("━", "▒", "╌", "+", "×", "✓", "→", "…")
PLAIN = Letters("=", "r", "-", "+", "x", "*", "->", "...")


def legend(letters: Letters = DRAWN) -> str:
    return (
        f"{letters.settled} assigned  {letters.revoking} revoking  {letters.waiting} waiting  "
        f"{letters.joined} joined  {letters.departed} departed  {letters.converged} converged"
    )


def timeline(trace: RebalanceTrace, width: int = 100, letters: Letters = DRAWN) -> list[str]:
    """Return the lines of the drawing, about `width` columns wide; none if the rebalance lacks a known start
    or end.

    `letters` are the characters to draw with: `DRAWN` or `PLAIN`."""
    r = trace.rebalance
    if r.start_ms is None or r.end_ms is None or r.end_ms <= r.start_ms or not trace.followers:
        return []
    heads = [(_cut(f.name, letters), f"{f.before} {letters.arrow} {f.after}") for f in trace.followers]
    name_width = max(len(name) for name, _ in heads)
    count_width = max(len(count) for _, count in heads)
    columns = max(width - name_width - count_width - 4, 20)
    scale = _Scale(r.start_ms, r.end_ms, columns)
    indent = " " * (name_width + count_width + 4)
    took = duration(r.end_ms - r.start_ms)
    first, last = scale.column(r.start_ms), scale.column(r.end_ms)
    ruler = " " * first + "0" + took.rjust(last - first)
    lines = [indent + ruler]
    for member, (name, count) in zip(trace.followers, heads, strict=True):
        lane = "".join(_lane(member, scale, letters)).rstrip()
        lines.append(f"{name.ljust(name_width)}  {count.rjust(count_width)}  {lane}".rstrip())
    if trace.left_out:
        lines.append(f"and {counted(trace.left_out, 'more member')}")
    return lines


class _Scale(NamedTuple):
    start_ms: int
    end_ms: int
    columns: int

    def column(self, ms: int) -> int:
        margin = max(self.columns // 12, 2)
        inner = self.columns - 2 * margin
        at = (ms - self.start_ms) / (self.end_ms - self.start_ms)
        return min(max(margin + round(at * (inner - 1)), 0), self.columns - 1)


def _lane(f: MemberTrace, scale: _Scale, letters: Letters) -> list[str]:
    start = scale.column(scale.start_ms)
    done = scale.column(scale.start_ms + f.acknowledged_ms) if f.acknowledged_ms is not None else None
    revoked = scale.column(f.gave_up_ms) if f.gave_up_ms is not None and f.revoked else start
    lane = []
    for column in range(scale.columns):
        if column < start or (done is not None and column > done):
            lane.append(letters.settled)
        elif column < revoked:
            lane.append(letters.revoking)
        else:
            lane.append(letters.waiting)
    if done is not None:
        lane[done] = letters.converged
    if f.came_ms is not None:
        came = scale.column(f.came_ms)
        lane[:came] = [" "] * came
        lane[came] = letters.joined
    if f.left_ms is not None:
        left = scale.column(f.left_ms)
        lane[left:] = [letters.departed, *[" "] * (len(lane) - left - 1)]
        lane[:left] = [letters.settled] * left
    return lane


def _cut(name: str, letters: Letters) -> str:
    return (
        name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - len(letters.dots)] + letters.dots
    )
