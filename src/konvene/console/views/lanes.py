"""Owners of partitions and tasks over time, as lanes of the timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from konvene.console.views.view import Row
from konvene.pipeline.answers.owners import owner_names
from konvene.pipeline.answers.sentences import ROLES

__all__ = ["lanes"]

MAX_LANES = 96
"""Lanes of a group, those with the most owners; the page draws no more."""
MAX_SPANS = 200
"""Spans of one lane; the oldest ones are left out."""
Unit = tuple[str, int, str, int]
"""Topic or subtopology, partition, role, and a number that separates owners of the same time."""


def lanes(owned: Iterable[Row], gaps: Iterable[Row], since_ms: int) -> tuple[dict[str, Row], int]:
    """Return a lane for each unit, by its name: its owners from `since_ms` on, and when it had no owner; and
    the number of lanes left out.

    `owned` and `gaps` are rows of `ownership` and `unavailability` of one group. Copies of a task and shared
    partitions have one lane for each owner at a time."""
    spans: dict[Unit, list[Row]] = defaultdict(list)
    ends: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for row in sorted(owned, key=lambda row: row["from_ms"]):
        to_ms = float("inf") if row["to_ms"] is None else row["to_ms"]
        if to_ms < since_ms:
            continue
        base = (row["topic"], row["partition"], row["role"])
        busy = ends[base]
        number = next((i for i, end in enumerate(busy) if end <= row["from_ms"]), len(busy))
        busy[number : number + 1] = [to_ms]
        spans[(*base, number)].append(row)
    unowned: dict[Unit, list[Row]] = defaultdict(list)
    for gap in gaps:
        if gap["to_ms"] is None or gap["to_ms"] >= since_ms:
            unowned[gap["topic"], gap["partition"], gap["role"], 0].append(gap)
    names = owner_names(row for rows in spans.values() for row in rows)
    found: dict[str, Row] = {}
    units = spans.keys() | unowned.keys()
    chosen = sorted(sorted(units, key=_sort_key), key=lambda unit: -len(spans.get(unit, ())))[:MAX_LANES]
    for order, unit in enumerate(sorted(chosen, key=_sort_key)):
        rows = spans.get(unit, [])
        kind = (rows or unowned[unit])[0]["group_type"]
        name = _lane_name(unit, kind)
        found[name] = {
            "name": name, "role": unit[2], "order": order,
            "spans": [[row["from_ms"], row["to_ms"], names[row["member_id"]]] for row in rows[-MAX_SPANS:]],
            "gaps": [[gap["from_ms"], gap["to_ms"]] for gap in unowned.get(unit, ())[-MAX_SPANS:]],
        }  # fmt: skip
    return found, len(units) - len(chosen)


def _sort_key(unit: Unit) -> tuple[bool, str, int, int, str]:
    topic, partition, role, number = unit
    return role not in ("active", "shared"), topic, partition, number, role


def _lane_name(unit: Unit, group_type: str) -> str:
    topic, partition, role, number = unit
    if group_type != "streams":
        return f"{topic}:{partition}" + (f" ({number + 1})" if number else "")
    more = f" {number + 1}" if number else ""
    return f"{topic}_{partition}" if role == "active" else f"{topic}_{partition} ({ROLES[role]}{more})"
