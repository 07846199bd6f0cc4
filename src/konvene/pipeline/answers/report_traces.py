"""The traces of rebalances in the report page: as many as fit.

A trace is what `konvene explain --why` prints: steps, members with what they waited for, and what the log
does not record. It takes about 1 KB. `add_traces` takes rebalances in turns, the newest of each group first,
then the second newest of each, until the given number of bytes is used; the page names the command for the
others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

from konvene.pipeline.answers.page import as_json
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.answers.trace import RebalanceSource, RebalanceTrace, trace
from konvene.pipeline.row import Row

__all__ = ["MEMBER_COLUMNS", "DrawnGroup", "RowIndex", "add_traces", "rebalance_key"]

MEMBER_COLUMNS = (
    "name", "part", "before", "after", "revoked", "added", "acknowledged_ms", "states", "waited_for",
)  # fmt: skip
"""The fields of `MemberTrace` that the page has."""

RebalanceKey = tuple[str, str, int, int, int]


class DrawnGroup(NamedTuple):
    """A group of the page that has details."""

    detail: dict[str, Any]
    """Its part of the page's data; `add_traces` adds `traces`."""
    rebalances: Sequence[Rebalance]
    """The listed ones, newest first."""
    rows: RowIndex


def rebalance_key(r: Rebalance) -> str:
    """Return a key that is unique within the group and the same in each report of its logs."""
    return f"{r.to_epoch}-{r.log_partition}-{r.base_offset}"


def add_traces(groups: Sequence[DrawnGroup], max_bytes: int) -> None:
    """Add the traces of rebalances to the groups' details, by key, at most so many bytes of JSON."""
    bytes_left = max_bytes
    for group in groups:
        group.detail["traces"] = {}
    for group, rebalance in _in_turns(groups):
        document = _document(trace(group.rows.near(rebalance), rebalance))
        key = rebalance_key(rebalance)
        bytes_left -= len(as_json({key: document}).encode())
        if bytes_left < 0:
            break
        group.detail["traces"][key] = document


def _in_turns(groups: Iterable[DrawnGroup]) -> Iterator[tuple[DrawnGroup, Rebalance]]:
    columns = ([(group, each) for each in group.rebalances] for group in groups)
    for turn in zip_longest(*columns):
        yield from (each for each in turn if each is not None)


def _document(traced: RebalanceTrace) -> dict[str, object]:
    """Return a trace as `report.js` reads it: steps and members are arrays."""
    r = traced.rebalance
    first_ms = traced.steps[0].ms if traced.steps else 0
    began_ms = r.start_ms if r.start_ms is not None else first_ms
    return {
        "converged": r.converged,
        "steps": [[step.ms - began_ms, step.text] for step in traced.steps],
        "members": [[getattr(each, name) for name in MEMBER_COLUMNS] for each in traced.followers],
        "left_out": traced.left_out,
        "unknown": traced.unknown,
    }


# the rows of a rebalance ----------------------------------------------------------------------


class RowIndex:
    """The rows of one group, indexed by rebalance and by time, since `trace` scans all rows that it gets."""

    def __init__(self, members: Iterable[Row], owned: Sequence[Row], gaps: Sequence[Row]) -> None:
        """Index the group's rows of `rebalance_member`, `ownership` and `unavailability`."""
        self._members = _by_rebalance(members)
        self._gained = sorted((row for row in owned if row["from_ms"] is not None), key=_from_ms)
        self._lost = sorted((row for row in owned if row["to_ms"] is not None), key=_to_ms)
        self._gaps = _by_rebalance(gaps)
        self._ended_gaps = sorted((row for row in gaps if row["to_ms"] is not None), key=_from_ms)
        self._latest_ends = list(accumulate(map(_to_ms, self._ended_gaps), max))
        self._open_gaps = [row for row in gaps if row["to_ms"] is None]

    def __repr__(self) -> str:
        return f"<rows of {len(self._members)} rebalances>"

    def near(self, r: Rebalance) -> RebalanceSource:
        """Return the rows that belong to the rebalance, and those of changes and gaps at its time."""
        low, high = (r.start_ms if r.start_ms is not None else r.at_ms), r.until_ms
        owned = [*_between(self._gained, low, high, _from_ms), *_between(self._lost, low, high, _to_ms)]
        gaps = [*self._gaps.get(r.key, []), *self._gaps_within(low, high), *self._open_gaps]
        return _Rows({
            "rebalance_member": self._members.get(r.key, []),
            "ownership": _distinct(owned),
            "unavailability": _distinct(gaps),
        })  # fmt: skip

    def _gaps_within(self, low: int, high: int) -> Iterator[Row]:
        """Yield the ended gaps that overlap this time."""
        for i in range(bisect_right(self._ended_gaps, high, key=_from_ms) - 1, -1, -1):
            if self._latest_ends[i] < low:
                return
            if self._ended_gaps[i]["to_ms"] >= low:
                yield self._ended_gaps[i]


class _Rows:
    """Rows of one group by table, for the traces of its rebalances."""

    def __init__(self, rows: Mapping[str, list[Row]]) -> None:
        self._rows = rows

    def select(self, wanted: Selection) -> Sequence[Rebalance]:
        return ()

    def rows(self, table: str, groups: Sequence[str]) -> list[Row]:
        """Return the table's rows, which are all of one group."""
        return self._rows[table]


def _by_rebalance(rows: Iterable[Row]) -> dict[RebalanceKey, list[Row]]:
    """Return rows by the key of their rebalance (`Rebalance.key`)."""
    found: dict[RebalanceKey, list[Row]] = defaultdict(list)
    for row in rows:
        epoch = row["to_epoch"] if "to_epoch" in row else row["epoch"]
        found[row["cluster"], row["group_id"], row["log_partition"], row["base_offset"], epoch].append(row)
    return found


def _between(rows: Sequence[Row], low: int, high: int, at: Callable[[Row], int]) -> Sequence[Row]:
    """Return the rows with a time from `low` to `high`; rows are sorted by it."""
    return rows[bisect_left(rows, low, key=at) : bisect_right(rows, high, key=at)]


def _distinct(rows: Iterable[Row]) -> list[Row]:
    return list({id(row): row for row in rows}.values())


def _from_ms(row: Row) -> int:
    ms: int = row["from_ms"]
    return ms


def _to_ms(row: Row) -> int:
    ms: int = row["to_ms"]
    return ms
