"""A rebalance drawn with letters: a lane for each member, time from left to right.

    ann (ann-a80d…)   6 → 4   ━━━━▒▒▒▒▒▒╌╌╌╌╌✓━━━━
    bob (bob-a334…)   6 → 0   ━━━━×
    cas (cas-8b06…)   0 → 8       +╌╌╌╌╌╌╌╌╌╌✓━━━━

Nothing is drawn where the log does not say when the rebalance began or ended. `PLAIN` is for terminals that
have ASCII alone.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.groups.history import duration
from konvene.pipeline.answers.why import Follower, Story

__all__ = ["DRAWN", "PLAIN", "Letters", "legend", "timeline"]

MOST_NAME = 34


class Letters(NamedTuple):
    settled: str
    gives_up: str
    follows: str
    joined: str
    gone: str
    done: str
    arrow: str
    dots: str


DRAWN = Letters("━", "▒", "╌", "+", "×", "✓", "→", "…")
PLAIN = Letters("=", "r", "-", "+", "x", "*", "->", "...")


def legend(letters: Letters = DRAWN) -> str:
    return (
        f"{letters.settled} has what it is to have  {letters.gives_up} gives up  {letters.follows} follows "
        f"or waits  {letters.joined} joins  {letters.gone} is gone  {letters.done} has followed"
    )


def timeline(story: Story, width: int = 100, letters: Letters = DRAWN) -> list[str]:
    """The lines of it; none where there is no time to draw."""
    r = story.rebalance
    if r.start_ms is None or r.end_ms is None or r.end_ms <= r.start_ms or not story.followers:
        return []
    heads = [(_cut(f.name, letters), f"{f.before} {letters.arrow} {f.after}") for f in story.followers]
    name_width = max(len(name) for name, _ in heads)
    count_width = max(len(count) for _, count in heads)
    room = max(width - name_width - count_width - 4, 20)
    scale = _Scale(r.start_ms, r.end_ms, room)
    indent = " " * (name_width + count_width + 4)
    took = duration(r.end_ms - r.start_ms)
    first, last = scale.column(r.start_ms), scale.column(r.end_ms)
    ruler = " " * first + "0" + took.rjust(last - first)
    lines = [indent + ruler]
    for follower, (name, count) in zip(story.followers, heads, strict=True):
        lane = "".join(_lane(follower, scale, letters)).rstrip()
        lines.append(f"{name.ljust(name_width)}  {count.rjust(count_width)}  {lane}".rstrip())
    if story.left_out:
        lines.append(f"and {story.left_out:,} more, who had little to do with it")
    return lines


class _Scale(NamedTuple):
    start_ms: int
    end_ms: int
    room: int

    def column(self, ms: int) -> int:
        margin = max(self.room // 12, 2)
        inner = self.room - 2 * margin
        at = (ms - self.start_ms) / (self.end_ms - self.start_ms)
        return min(max(margin + round(at * (inner - 1)), 0), self.room - 1)


def _lane(f: Follower, scale: _Scale, letters: Letters) -> list[str]:
    start = scale.column(scale.start_ms)
    done = scale.column(scale.start_ms + f.acknowledged_ms) if f.acknowledged_ms is not None else None
    gave = scale.column(f.gave_up_ms) if f.gave_up_ms is not None and f.revoked else start
    lane = []
    for column in range(scale.room):
        if column < start or (done is not None and column > done):
            lane.append(letters.settled)
        elif column < gave:
            lane.append(letters.gives_up)
        else:
            lane.append(letters.follows)
    if done is not None:
        lane[done] = letters.done
    if f.came_ms is not None:
        came = scale.column(f.came_ms)
        lane[:came] = [" "] * came
        lane[came] = letters.joined
    if f.left_ms is not None:
        left = scale.column(f.left_ms)
        lane[left:] = [letters.gone, *[" "] * (len(lane) - left - 1)]
        lane[:left] = [letters.settled] * left
    return lane


def _cut(name: str, letters: Letters) -> str:
    return name if len(name) <= MOST_NAME else name[: MOST_NAME - len(letters.dots)] + letters.dots
