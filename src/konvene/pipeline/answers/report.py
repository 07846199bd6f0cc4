"""The report page: what it shows of many groups, and how it stays small.

`page` builds the HTML from a template, a style sheet and scripts (the files in `page`) and the data as JSON
within the page. It needs no network and no other file. Strings from a log (ids of groups and clients,
reasons) occur only in that JSON, in which `<` cannot occur, and the script inserts them as text, never as
markup; a content security policy allows no other script.

The page stays below `MAX_BYTES` however long the logs are. Up to `MAX_GROUPS` groups have a row; the most
expensive ones have details, as many as fit. The newest `MAX_REBALANCES` rebalances of a group are listed, and
as many of them as fit have a trace (`report_traces`). Owners that are too short to be drawn are merged into
"several"; lag and health keep the worst value of each interval, and deliveries are summed over it. Share
partitions are listed by problems, up to `MAX_PARTITIONS`.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from konvene.pipeline.answers.cost import Cost, Ends, costs
from konvene.pipeline.answers.cost import Key as RebalanceKey
from konvene.pipeline.answers.damage import sentence as damage_sentence
from konvene.pipeline.answers.deliveries import Delivery, deliveries, minutes, problems
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.owners import owner_names
from konvene.pipeline.answers.page import SHARED_SCRIPTS, as_json, file_text
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.answers.report_traces import (
    MEMBER_COLUMNS,
    DrawnGroup,
    RowIndex,
    add_traces,
    rebalance_key,
)
from konvene.pipeline.answers.sentences import ROLES, caveats, note, sentence
from konvene.pipeline.answers.summary import Group, Summary, summarise
from konvene.pipeline.row import Row

__all__ = ["MAX_BYTES", "collect", "page"]

MAX_BYTES = 3_000_000
DETAIL_BYTES = 2_300_000
TRACE_BYTES = 1_500_000
CODE_BYTES = 150_000
"""Bytes for scripts, styles, the title and the source."""
MAX_GROUPS = 1_000
MAX_DETAILS = 40
MAX_REBALANCES = 1_500
MAX_LANES = 96
MAX_SEGMENTS = 8_000
MAX_PARTITIONS = 300
MAX_MINUTES = 100
MAX_DAMAGE = 50
MINUTE_MS = 60_000
POINTS = 600
"""Maximum number of points of a curve."""
SEVERAL = -1
"""Stands for the owner of a merged interval: several members, each too short to be drawn."""

DAMAGED = "Records next to this rebalance could not be read."

Key = tuple[str, str]

COLUMNS = (
    "key", "at_ms", "until_ms", "duration_ms", "from_epoch", "epoch", "cause", "moved", "unavailable_ms",
    "stopped", "lag_records", "evidence", "sentence", "note",
)  # fmt: skip
"""The columns of a rebalance, which the page holds as arrays."""


def page(gold: Gold, wanted: Selection, *, title: str = "", source: str = "") -> str:
    """Return the HTML page of the selected rebalances; the header has `title`, and `source` for the logs."""
    data = collect(gold, wanted)
    data["source"] = source
    shown = title or "Why groups rebalanced"
    data["title"] = shown
    style = file_text("page.css")
    script = "".join(file_text(name) for name in (*SHARED_SCRIPTS, "report.js"))
    parts = {
        "TITLE": html.escape(shown), "STYLE": style, "STYLE_DIGEST": _digest(style), "SCRIPT": script,
        "SCRIPT_DIGEST": _digest(script), "DATA": as_json(data),
    }  # fmt: skip
    pieces = file_text("report.html").split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _digest(text: str) -> str:
    """Return the digest by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def collect(gold: Gold, wanted: Selection) -> dict[str, object]:
    """Return the data of the page, as `report.js` reads it."""
    rebalances = gold.select(wanted)
    summary = summarise(gold, wanted, rebalances)
    shown = summary.groups[:MAX_GROUPS]
    drawn = _drawn_groups(gold, summary, rebalances, [g for g in shown if g.rebalances][:MAX_DETAILS])
    known = [g.unavailable_ms for g in summary.groups if g.unavailable_ms is not None]
    data: dict[str, object] = {
        "from_ms": summary.from_ms,
        "to_ms": summary.to_ms,
        "rebalances": summary.rebalances,
        "unavailable_ms": sum(known) if known or not summary.groups else None,
        "groups": [_group(g) for g in shown],
        "groups_left_out": len(summary.groups) - len(shown),
        "storms": [[s.cluster, s.group_id, s.from_ms, s.to_ms, s.rebalances] for s in summary.storms[:500]],
        "triggering": [
            [t.name, t.group_id, t.rebalances, t.of, list(t.kinds)] for t in summary.triggering[:100]
        ],
        "advice": [[a.group, a.rule, a.text] for a in summary.advice[:100]],
        "caveats": caveats(rebalances),
        "damage": [damage_sentence(each) for each in summary.damage[:MAX_DAMAGE]],
        "damage_left_out": max(len(summary.damage) - MAX_DAMAGE, 0),
        "columns": COLUMNS,
        "member_columns": MEMBER_COLUMNS,
        "details": [group.detail for group in drawn],
        "deliveries": _deliveries(deliveries(gold, wanted.groups)),
        "minutes": [_minute(row) for row in minutes(gold, wanted.groups)[:MAX_MINUTES]],
    }
    bytes_left = MAX_BYTES - CODE_BYTES - len(as_json(data).encode())
    add_traces(drawn, min(TRACE_BYTES, bytes_left))
    return data


def _group(g: Group) -> dict[str, object]:
    return {
        "cluster": g.cluster, "id": g.group_id, "type": g.group_type, "rebalances": g.rebalances,
        "members": g.members, "median_ms": g.median_ms, "slowest_ms": g.slowest_ms,
        "unavailable_ms": g.unavailable_ms, "moved": g.moved, "storms": g.storms, "causes": g.causes[:4],
    }  # fmt: skip


# records of share groups ----------------------------------------------------------------------


def _deliveries(found: Sequence[Delivery]) -> dict[str, object]:
    """Return the share partitions in the given order, up to `MAX_PARTITIONS`, and the totals of all of
    them."""
    return {
        "partitions": [_partition(each) for each in found[:MAX_PARTITIONS]],
        "left_out": max(len(found) - MAX_PARTITIONS, 0),
        "redelivered": sum(each.row["redelivered"] for each in found),
        "archived": sum(each.row["archived"] for each in found),
        "stuck": sum(each.stuck for each in found),
    }


def _partition(each: Delivery) -> dict[str, object]:
    row = each.row
    has_start = row["deleted_ms"] is None and row["start_offset"] >= 0
    return {
        "cluster": row["cluster"], "group": row["group_id"], "name": each.name,
        "start": row["start_offset"] if has_start else None, "delivered": row["delivered"],
        "redelivered": row["redelivered"], "accepted": row["acknowledged"], "released": row["released"],
        "archived": row["archived"], "in_flight": row["in_flight"], "unknown": row["untold"],
        "blocked_ms": each.stood_ms if row["in_flight"] or row["untold"] else None, "stuck": each.stuck,
        "whole": row["evidence"] == "observed", "trouble": problems(each),
    }  # fmt: skip


def _minute(row: Row) -> list[object]:
    name = f"{row['topic']}:{row['partition']}"
    return [
        row["minute_ms"], row["group_id"], name, row["delivered"], row["redelivered"], row["archived"],
        row["start_offset"] if (row["start_offset"] or 0) >= 0 else None,
    ]  # fmt: skip


# details --------------------------------------------------------------------------------------


def _drawn_groups(
    gold: Gold, summary: Summary, rebalances: Sequence[Rebalance], chosen: Sequence[Group]
) -> list[DrawnGroup]:
    """Return rebalances, lanes and curves of the `chosen` groups, as many groups as fit into
    `DETAIL_BYTES`."""
    names = sorted({g.group_id for g in chosen})
    if not names:
        return []
    by_group: dict[Key, list[Rebalance]] = defaultdict(list)
    for each in rebalances:
        by_group[each.cluster, each.group_id].append(each)
    gaps = gold.rows_by_group("unavailability", names)
    lag = gold.rows_by_group("lag", names)
    owned = gold.rows_by_group("ownership", names)
    health = gold.rows_by_group("group_health", names)
    records = gold.rows_by_group("share_progress", names)
    members = gold.rows_by_group("rebalance_member", names)
    found: list[DrawnGroup] = []
    bytes_left = DETAIL_BYTES
    for g in chosen:
        key = (g.cluster, g.group_id)
        detail = _detail(
            key, by_group[key], gaps[key], lag[key], owned[key], health[key], records[key], gold.damaged
        )
        bytes_left -= len(as_json(detail).encode())
        if bytes_left < 0 and found:
            break
        rows = RowIndex(members[key], owned[key], gaps[key])
        found.append(DrawnGroup(detail, by_group[key][:MAX_REBALANCES], rows))
    return found


def _detail(
    key: Key, rebalances: Sequence[Rebalance], gaps: Sequence[Row], lag: Sequence[Row], owned: Sequence[Row],
    health: Sequence[Row], records: Sequence[Row], damaged: Container[RebalanceKey],
) -> dict[str, object]:  # fmt: skip
    cost = costs(rebalances, gaps, Ends(lag))
    shown = rebalances[:MAX_REBALANCES]
    times = [ms for r in rebalances for ms in (r.at_ms, r.until_ms) if ms >= 0]
    times += [row["minute_ms"] for row in (*lag, *records)]
    low, high = min(times, default=0), max(times, default=0)
    high = max(high, low + 1)
    names, lanes, left_out = _lanes(owned, gaps, low, high)
    return {
        "cluster": key[0],
        "id": key[1],
        "from_ms": low,
        "to_ms": high,
        "rebalances": [_row(r, cost.get(r.key), r.key in damaged) for r in shown],
        "rebalances_left_out": len(rebalances) - len(shown),
        "names": names,
        "lanes": lanes,
        "lanes_left_out": left_out,
        "lag": _lag(lag, low, high),
        "redeliveries": _redeliveries(records, low, high),
        "health": _reduced(sorted((row["minute_ms"], row["score"]) for row in health), low, high, min),
    }


def _row(r: Rebalance, cost: Cost | None, is_damaged: bool) -> list[object]:
    return [
        rebalance_key(r), r.at_ms, r.until_ms, r.duration_ms,
        r.from_epoch if r.from_epoch >= 0 else None, r.to_epoch, r.cause, r.moved, r.unavailable_ms,
        cost.stopped if cost else None, cost.lag_records if cost else None, r.evidence,
        sentence(r, cost), f"{note(r)} {DAMAGED}".strip() if is_damaged else note(r),
    ]  # fmt: skip


# lanes ----------------------------------------------------------------------------------------


class _Lane(NamedTuple):
    """A line of the chart that shows the owners of units over time; an array in the page's JSON."""

    unit: str
    owners: list[int]
    """From, to and owner of each interval; an owner is an index into the names, or `SEVERAL`."""
    gaps: list[int]
    """From and to of each gap."""


def _lanes(
    owned: Sequence[Row], gaps: Sequence[Row], low: int, high: int
) -> tuple[list[str], list[_Lane], int]:
    """Return the names of members, a lane for each partition or task, and the number of lanes left out.

    A unit with several owners at a time has several lanes. `low` and `high` are the times of both ends."""
    by_unit = _side_by_side(owned)
    gaps_by_unit: dict[tuple[str, int, str, int], list[Row]] = defaultdict(list)
    for row in gaps:
        gaps_by_unit[row["topic"], row["partition"], row["role"], 0].append(row)
    busiest = sorted(by_unit, key=lambda unit: (-len(by_unit[unit]), unit))[:MAX_LANES]
    chosen = sorted(busiest, key=lambda unit: (unit[2], unit[0], unit[1], unit[3]))
    name_of = owner_names(row for unit in chosen for row in by_unit[unit])
    names = sorted(set(name_of.values()))
    number = {name: i for i, name in enumerate(names)}
    least = (high - low) // 4000
    while True:
        lanes = []
        for unit in chosen:
            spans = [(*_span(row, high), number[name_of[row["member_id"]]]) for row in by_unit[unit]]
            unowned = [(*_span(row, high), 0) for row in gaps_by_unit.get(unit, ())]
            kind = by_unit[unit][0]["group_type"]
            lanes.append(
                _Lane(_unit_name(unit, kind), _flat(_merged(spans, least)), _pairs(_merged(unowned, least)))
            )
        if sum(len(lane.owners) // 3 + len(lane.gaps) // 2 for lane in lanes) <= MAX_SEGMENTS:
            return names, lanes, len(by_unit) - len(chosen)
        least = max(least * 2, 1)


def _side_by_side(owned: Sequence[Row]) -> dict[tuple[str, int, str, int], list[Row]]:
    """Distribute ownership rows over lanes in which they do not overlap.

    The keys are topic, partition, role and lane, numbered from 0. An active unit has lane 0 only."""
    found: dict[tuple[str, int, str, int], list[Row]] = defaultdict(list)
    ends: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for row in sorted(owned, key=lambda row: row["from_ms"]):
        unit = (row["topic"], row["partition"], row["role"])
        lanes = ends[unit]
        free = 0
        if row["role"] not in ("active", "connector", "task"):  # Standbys too may be several.
            free = next((i for i, end in enumerate(lanes) if end <= row["from_ms"]), len(lanes))
        lanes[free : free + 1] = [float("inf") if row["to_ms"] is None else row["to_ms"]]
        found[(*unit, free)].append(row)
    return found


def _span(row: Row, high: int) -> tuple[int, int]:
    return row["from_ms"], high if row["to_ms"] is None else row["to_ms"]


def _unit_name(unit: tuple[str, int, str, int], group_type: str) -> str:
    topic, partition, role, lane = unit
    if role == "connector":
        return f"connector {topic}"
    if role == "task":
        return f"{topic}-{partition}"
    if group_type != "streams":
        return f"{topic}:{partition}" + (f" ({lane + 1})" if lane else "")
    more = f" {lane + 1}" if lane else ""
    return f"{topic}_{partition}" if role == "active" else f"{topic}_{partition} ({ROLES[role]}{more})"


def _merged(spans: Iterable[tuple[int, int, int]], least: int) -> list[tuple[int, int, int]]:
    """Sort spans of start, end and owner, and merge adjacent ones that have the same owner or are shorter
    than `least`."""
    found: list[tuple[int, int, int]] = []
    for from_ms, to_ms, name in sorted(spans):
        if found and to_ms - from_ms < least and from_ms - found[-1][1] <= least:
            before = found[-1]
            if before[1] - before[0] < least or before[2] == SEVERAL:
                found[-1] = (before[0], to_ms, name if name == before[2] else SEVERAL)
                continue
        if found and found[-1][2] == name and found[-1][1] >= from_ms:
            found[-1] = (found[-1][0], max(to_ms, found[-1][1]), name)
            continue
        found.append((from_ms, to_ms, name))
    return found


def _flat(spans: Iterable[tuple[int, int, int]]) -> list[int]:
    return [number for span in spans for number in span]


def _pairs(spans: Iterable[tuple[int, int, int]]) -> list[int]:
    return [number for span in spans for number in span[:2]]


# curves ---------------------------------------------------------------------------------------


def _lag(rows: Sequence[Row], low: int, high: int) -> list[list[int]]:
    """Return the total lag of the group from `low` to `high` (ms), as points [ms, lag].

    Each partition counts with its last known lag."""
    changes = sorted(
        (row["minute_ms"], (row["topic"], row["partition"]), row["lag"])
        for row in rows
        if row["lag"] is not None
    )
    current: dict[tuple[str, int], int] = {}
    total = 0
    found: list[tuple[int, int]] = []
    for minute_ms, unit, lag in changes:
        total += lag - current.get(unit, 0)
        current[unit] = lag
        if found and found[-1][0] == minute_ms:
            found[-1] = (minute_ms, total)
        else:
            found.append((minute_ms, total))
    return _reduced(found, low, high, max)


def _reduced(
    points: Sequence[tuple[int, int]], low: int, high: int, worst: Callable[[int, int], int]
) -> list[list[int]]:
    """Reduce points (time, value) between `low` and `high` to at most about `POINTS`.

    An interval with several points keeps the first time and the worst value, which `worst` (`min` or `max`)
    chooses."""
    if len(points) <= POINTS:
        return [list(point) for point in points]
    width = max((high - low) / POINTS, 1)
    stretches: dict[int, tuple[int, int]] = {}
    for ms, value in points:
        at = int((ms - low) / width)
        old = stretches.get(at)
        stretches[at] = (ms, value) if old is None else (old[0], worst(old[1], value))
    return [list(stretches[at]) for at in sorted(stretches)]


def _redeliveries(rows: Sequence[Row], low: int, high: int) -> dict[str, object]:
    """Sum redelivered and archived records over intervals of equal length.

    Returns the length as `interval_ms`, and as `sums` the start of each interval with both sums."""
    interval = max(-(-(high - low) // (POINTS * MINUTE_MS)), 1) * MINUTE_MS
    sums: dict[int, list[int]] = {}
    for row in rows:
        if row["redelivered"] or row["archived"]:
            each = sums.setdefault(row["minute_ms"] // interval * interval, [0, 0])
            each[0] += row["redelivered"]
            each[1] += row["archived"]
    return {"interval_ms": interval, "sums": [[ms, *sums[ms]] for ms in sorted(sums)]}
