"""Health of groups, minute by minute, from their rebalances and gaps.

A group has a row for each minute with a change: a rebalance began, went on or ended, or a partition (active
task) lost its owner or got one. Between two such minutes a group is as it was at the end of the last one.
Rebalances and gaps that are open when the log ends continue to `until_ms`, the last time in the log (without
it, in the tables), but such a rebalance has rows for its first day only.

The formulas:

    state             that of the rebalance which began last, if it is over; else its current phase
    storm             at some moment of the minute five rebalances had begun within ten minutes
    unavailable_pct   100 * time without owner / (units * length of the minute)
    stuck_member_id   the member that converged in no rebalance of the minute, while there was always one in
                      progress; of several, the one that most members waited for, then the first by id
    score             100 - ceil(40 * unavailable_pct / 100) - 30 if storm - 20 if stuck
                      - 10 if more than one rebalance began within the last hour

A rebalance triggered by a warm-up that caught up continues an earlier one: it does not count for storm and
score. Units are those that members had when the last rebalance was over, or those without owner if they are
more. Nothing here reads a clock, and rows are sorted by group and minute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from konvene.pipeline.row import Row
from konvene.pipeline.tables import TABLES
from konvene.shard.causes import WARMUP_CAUGHT_UP

__all__ = ["health_rows"]

MINUTE_MS = 60_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STORM_MS, STORM_REBALANCES = 600_000, 5
UNAVAILABLE_WEIGHT, STORM_WEIGHT, STUCK_WEIGHT, RESTLESS_WEIGHT = 40, 30, 20, 10
_ROWS = 16_384

_BUSY = {
    "classic": ("PreparingRebalance", "CompletingRebalance"),
    "consumer": ("Assigning", "Reconciling"),
    "streams": ("Assigning", "Reconciling"),
    "share": ("Assigning", "Reconciling"),
}
"""The state of a group before its target assignment is computed, and after it."""

_READ = ("active", "shared", "connector", "task")
"""Roles in which a partition or task is read."""

_REBALANCE = (
    "cluster", "group_id", "group_type", "state", "start_ms", "target_ms", "end_ms", "duration_ms",
    "members", "units", "last_member_id", "log_partition", "base_offset", "cause",
)  # fmt: skip
_GAP = ("cluster", "group_id", "group_type", "topic", "partition", "role", "from_ms", "to_ms")
_MEMBER = ("log_partition", "base_offset", "member_id", "part", "acknowledged_ms", "waited_for")


class _Run(NamedTuple):
    """A rebalance as an interval, from its first known time to its end; while it is open, to the end of the
    log."""

    start_ms: int
    target_ms: int | None
    over_ms: int
    ended: bool
    row: Row


class _Gap(NamedTuple):
    start_ms: int
    unit: tuple[str, int]
    over_ms: int
    ended: bool


_Interval = TypeVar("_Interval", _Run, _Gap)


@dataclass(slots=True)
class _Group:
    type: str
    """The group's type before its first rebalance."""
    rebalances: list[Row] = field(default_factory=list)
    gaps: list[_Gap] = field(default_factory=list)


Members = Mapping[tuple[int, int], Sequence[Row]]
"""The members of rebalances, by log partition and first record."""


def health_rows(
    rebalance: pa.Table,
    unavailability: pa.Table,
    rebalance_member: pa.Table | None = None,
    *,
    until_ms: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `group_health` of one log partition, from its rows of these tables.

    `until_ms` is the last time in the log; without it, the last one in the tables is used."""
    members = _members(rebalance_member)
    if until_ms is None:
        until_ms = _last_time(rebalance, unavailability)
    groups = _groups(rebalance, unavailability, until_ms)
    held: list[tuple[object, ...]] = []
    for (cluster, group_id), group in sorted(groups.items()):
        for row in _health(group, members, until_ms):
            held.append((cluster, group_id, *row))
            if len(held) == _ROWS:
                yield TABLES["group_health"].batch(held)
                held = []
    if held:
        yield TABLES["group_health"].batch(held)


def _groups(rebalance: pa.Table, unavailability: pa.Table, until_ms: int) -> dict[tuple[str, str], _Group]:
    groups: dict[tuple[str, str], _Group] = {}
    for row in _rows(rebalance, _REBALANCE):
        group = groups.setdefault((row["cluster"], row["group_id"]), _Group(row["group_type"]))
        group.rebalances.append(row)
    for batch in unavailability.select(list(_GAP)).to_batches(max_chunksize=8192):
        columns = (column.to_pylist() for column in batch.columns)
        for cluster, group_id, group_type, topic, partition, role, from_ms, to_ms in zip(
            *columns, strict=True
        ):
            if role not in _READ:
                continue
            found = groups.get((cluster, group_id))
            if found is None:
                found = groups[cluster, group_id] = _Group(group_type)
            over_ms = max(from_ms, until_ms if to_ms is None else to_ms)
            found.gaps.append(_Gap(from_ms, (topic, partition), over_ms, to_ms is not None))
    return groups


def _members(table: pa.Table | None) -> Members:
    found: dict[tuple[int, int], list[Row]] = {}
    if table is not None:
        for row in _rows(table, _MEMBER):
            if row["part"] != "gone":
                found.setdefault((row["log_partition"], row["base_offset"]), []).append(row)
    return found


def _last_time(rebalance: pa.Table, unavailability: pa.Table) -> int:
    times = [rebalance[name] for name in ("start_ms", "target_ms", "end_ms")]
    times += [unavailability[name] for name in ("from_ms", "to_ms")]
    return max((time for column in times for time in column.to_pylist() if time is not None), default=0)


def _rows(table: pa.Table, columns: Sequence[str]) -> Iterator[Row]:
    for batch in table.select(list(columns)).to_batches(max_chunksize=8192):
        yield from batch.to_pylist()


def _health(group: _Group, members: Members, until_ms: int) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a group, without the first two columns: cluster and group id."""
    runs = sorted(_runs(group.rebalances, until_ms), key=lambda run: (run.start_ms, run.row["base_offset"]))
    gaps = sorted(group.gaps)
    by_start = _Starts([run.start_ms for run in runs])
    counted_starts = _Starts([run.start_ms for run in runs if run.row["cause"] != WARMUP_CAUGHT_UP])
    by_end = _Ends(runs)
    open_runs, open_gaps = _Open(runs), _Open(gaps)
    for minute_ms in _minutes(runs, gaps):
        end_ms = minute_ms + MINUTE_MS
        running = open_runs.within(minute_ms, end_ms)
        latest = by_start.last_before(end_ms)
        over = by_end.last_before(end_ms)
        kind = runs[latest].row["group_type"] if latest >= 0 else group.type
        state, count = _state(kind, runs[latest] if latest >= 0 else None, over, end_ms)
        units = over.row["units"] if over is not None else 0
        unavailable = _unavailable(open_gaps.within(minute_ms, end_ms), units, minute_ms)
        stuck = _stuck(running, members, minute_ms)
        storm = counted_starts.storm(minute_ms)
        last_hour = by_start.between(end_ms - HOUR_MS, end_ms)
        yield (
            kind, minute_ms, state, count, by_start.between(minute_ms, end_ms), last_hour,
            by_end.p99(end_ms - HOUR_MS, end_ms), unavailable, stuck, storm,
            _score(unavailable, storm, stuck is not None, counted_starts.between(end_ms - HOUR_MS, end_ms)),
        )  # fmt: skip


def _runs(rebalances: Iterable[Row], until_ms: int) -> Iterator[_Run]:
    for row in rebalances:
        times = [row[name] for name in ("start_ms", "target_ms", "end_ms") if row[name] is not None]
        if times:
            ended = row["end_ms"] is not None
            over_ms = row["end_ms"] if ended else max(until_ms, *times)
            yield _Run(times[0], row["target_ms"], max(times[0], over_ms), ended, row)


def _minutes(runs: Sequence[_Run], gaps: Sequence[_Gap]) -> list[int]:
    """Return the start times of the minutes in which a rebalance or gap begins, ends or (for rebalances)
    continues."""
    found: set[int] = set()
    for run in runs:
        over_ms = min(run.over_ms, run.start_ms + DAY_MS)
        found.update(range(run.start_ms // MINUTE_MS, over_ms // MINUTE_MS + 1))
        if run.ended:
            found.add(run.over_ms // MINUTE_MS)
    for gap in gaps:
        found.add(gap.start_ms // MINUTE_MS)
        if gap.ended:
            found.add(gap.over_ms // MINUTE_MS)
    return [minute * MINUTE_MS for minute in sorted(found)]


class _Starts:
    """Sorted times at which rebalances began."""

    def __init__(self, times: list[int]) -> None:
        self._times = times

    def __repr__(self) -> str:
        return f"<{len(self._times)} starts>"

    def last_before(self, ms: int) -> int:
        return bisect_left(self._times, ms) - 1

    def between(self, from_ms: int, to_ms: int) -> int:
        return bisect_left(self._times, to_ms) - bisect_left(self._times, from_ms)

    def storm(self, minute_ms: int) -> bool:
        """Return True if at some moment of the minute `STORM_REBALANCES` rebalances had begun within ten
        minutes."""
        first = bisect_left(self._times, minute_ms)
        behind = bisect_left(self._times, minute_ms + MINUTE_MS)
        moments = [minute_ms, *self._times[first:behind]]
        return any(self._within(ms) >= STORM_REBALANCES for ms in moments)

    def _within(self, ms: int) -> int:
        """Return the number of rebalances that began in the ten minutes up to this moment."""
        return bisect_right(self._times, ms) - bisect_right(self._times, ms - STORM_MS)


class _Ends:
    """Rebalances that ended, sorted by that time."""

    def __init__(self, runs: Iterable[_Run]) -> None:
        ended = (run for run in runs if run.ended)
        self._runs = sorted(ended, key=lambda run: (run.over_ms, run.start_ms, run.row["base_offset"]))
        self._times = [run.over_ms for run in self._runs]

    def __repr__(self) -> str:
        return f"<{len(self._times)} ends>"

    def last_before(self, ms: int) -> _Run | None:
        at = bisect_left(self._times, ms)
        return self._runs[at - 1] if at else None

    def p99(self, from_ms: int, to_ms: int) -> int | None:
        """Return the 99th percentile (nearest rank) of the durations of rebalances that ended in this
        interval; None if none is known."""
        runs = self._runs[bisect_left(self._times, from_ms) : bisect_left(self._times, to_ms)]
        known = (run.row["duration_ms"] for run in runs)
        durations = sorted(ms for ms in known if ms is not None and ms >= 0)  # Clocks may be set back.
        return durations[(99 * len(durations) + 99) // 100 - 1] if durations else None


class _Open(Generic[_Interval]):
    """Intervals, sorted by start; `within` returns those that overlap a minute.

    Minutes must be queried in ascending order."""

    def __init__(self, intervals: Sequence[_Interval]) -> None:
        self._intervals: Sequence[_Interval] = intervals
        self._next = 0
        self._open: list[_Interval] = []

    def __repr__(self) -> str:
        return f"<{len(self._open)} open>"

    def within(self, from_ms: int, to_ms: int) -> list[_Interval]:
        while self._next < len(self._intervals) and self._intervals[self._next].start_ms < to_ms:
            self._open.append(self._intervals[self._next])
            self._next += 1
        self._open = [one for one in self._open if one.over_ms >= from_ms]
        return self._open


def _state(kind: str, latest: _Run | None, over: _Run | None, end_ms: int) -> tuple[str, int]:
    """Return the state of a group at the end of a minute, and its number of members then.

    `kind` is the group's type, `latest` the rebalance that began last, `over` the last one that is over."""
    if latest is None:
        return "Unknown", 0
    if latest.ended and latest.over_ms < end_ms:
        return latest.row["state"], latest.row["members"]
    before, behind = _BUSY[kind]
    made = latest.target_ms is not None and latest.target_ms < end_ms
    # The members of a rebalancing classic group are not known before all have joined.
    known = over if kind == "classic" and not made and over is not None else latest
    return behind if made else before, known.row["members"]


def _unavailable(gaps: Sequence[_Gap], units: int, minute_ms: int) -> float | None:
    total = 0
    without = set()
    end_ms = minute_ms + MINUTE_MS
    for start_ms, unit, over_ms, _ in gaps:
        first = start_ms if start_ms > minute_ms else minute_ms
        last = over_ms if over_ms < end_ms else end_ms
        if last > first:
            total += last - first
            without.add(unit)
    units = max(units, len(without))
    return min(100.0, 100.0 * total / (units * MINUTE_MS)) if units else None


def _stuck(running: Sequence[_Run], members: Members, minute_ms: int) -> str | None:
    """Return the member that kept the group from being stable for the whole minute; None if there is none."""
    at = minute_ms
    blockers: dict[str, int] | None = None
    for run in running:
        if run.start_ms > at:
            return None
        upto = min(run.over_ms, minute_ms + MINUTE_MS)
        if upto <= at:
            continue
        waiting = _waiting(run, members, upto)
        blockers = (
            waiting
            if blockers is None
            else {
                member_id: blockers[member_id] + waiting[member_id]
                for member_id in blockers
                if member_id in waiting
            }
        )
        at = upto
    if at < minute_ms + MINUTE_MS or not blockers:
        return None
    return min(blockers, key=lambda member_id: (-blockers[member_id], member_id))


def _waiting(run: _Run, members: Members, upto_ms: int) -> dict[str, int]:
    """Return the members that had not converged by `upto_ms`, each with a count that ranks them.

    It is the number of members that waited for this one at any time during the rebalance. The last member to
    converge, if known, gets so much more that it ranks first. If `members` has no rows of the rebalance, that
    member is the only one.
    """
    rows = members.get((run.row["log_partition"], run.row["base_offset"]), ())
    late = [row for row in rows if not _acknowledged(row, run, upto_ms)]
    waits = {row["member_id"]: 0 for row in late}
    for row in rows:
        for member_id in row["waited_for"]:
            if member_id in waits:
                waits[member_id] += 1
    last = run.row["last_member_id"]
    if last is not None and (not rows or last in waits):
        waits[last] = waits.get(last, 0) + len(rows) + 1
    return waits


def _acknowledged(row: Row, run: _Run, upto_ms: int) -> bool:
    durations = row["acknowledged_ms"]
    return durations is not None and run.start_ms + int(durations) < upto_ms


def _score(unavailable: float | None, storm: bool, stuck: bool, last_hour: int) -> int:
    lost = -int(-UNAVAILABLE_WEIGHT * (unavailable or 0.0) // 100)
    return 100 - lost - STORM_WEIGHT * storm - STUCK_WEIGHT * stuck - RESTLESS_WEIGHT * (last_hour > 1)
