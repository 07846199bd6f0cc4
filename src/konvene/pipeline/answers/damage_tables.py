"""Reads the tables for `konvene.pipeline.answers.damage`: the rows of damage, and the batches beside it.

Logs without damage cost two small reads. Otherwise the segments with damage are read, column by column.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from konvene.internal_topics import COORDINATOR_TOPICS, OFFSETS_TOPIC
from konvene.pipeline.answers.cost import Key
from konvene.pipeline.answers.damage import Beside, Damage, Log, assess, damaged, missing_spans
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.arrays import Ints
from konvene.pipeline.row import Row

if TYPE_CHECKING:
    from konvene.pipeline.answers.gold import Gold

__all__ = ["find_damage"]

WINDOW = 100_000
"""Offsets that are read beyond a segment, and in which a repeated key is looked for."""
_BESIDE = ("batch_base_offset", "batch_last_offset", "timestamp_ms", "segment_base_offset", "file_position")


def find_damage(gold: Gold) -> tuple[list[Damage], dict[Key, Damage]]:
    """Return the damage of the logs, and the rebalances, by key, that it may have changed."""
    rows, spans = gold.matching("quarantine"), gold.matching("log_span")
    gaps = [each for each in _gaps(spans) if _has_repeated_key(gold, *each[:2])]
    if not rows and not gaps:
        return [], {}
    by_log: dict[Log, list[Row]] = defaultdict(list)
    for row in rows:
        by_log[_log(row)].append(row)
    read: dict[Log, list[Beside]] = {}
    groups: dict[Log, set[str]] = defaultdict(set)
    for log in {*by_log, *(log for log, *_ in gaps)}:
        if log[1] not in COORDINATOR_TOPICS:
            by_log[log] = [row | {"segment_base_offset": -1} for row in by_log[log]]
            read[log] = _beside_audit(gold, log, by_log[log])
            continue
        read[log], groups[log] = _beside(gold, log, by_log[log], [gap for at, _, gap in gaps if at == log])
        by_log[log] = _with_groups(gold, log, by_log[log])
    for row in gold.rows("rebalance", columns=("cluster", "log_partition", "group_id")):
        groups[row["cluster"], OFFSETS_TOPIC, row["log_partition"]].add(row["group_id"])
    known = {log: some for log, some in groups.items() if log[1] == OFFSETS_TOPIC}
    uncleaned = [(log, before["first_offset"]) for log, before, _ in gaps]
    found = assess(itertools.chain.from_iterable(by_log.values()), spans, read, known, uncleaned)
    concerned = {g for each in found if each.topic == OFFSETS_TOPIC for g in each.groups}
    rebalances = gold.select(Selection(tuple(sorted(concerned)))) if concerned else []
    counted = [_with_counts(each, rebalances) for each in found]
    return counted, damaged(rebalances, counted)


def _with_counts(damage: Damage, rebalances: Sequence[Rebalance]) -> Damage:
    """Return the damage with the number of these rebalances that it may have changed."""
    changed = damaged(rebalances, [damage])
    missing = sum(1 for r in rebalances if r.key in changed and r.evidence == "missing")
    return replace(damage, rebalances=len(changed), missing=missing)


def _log(row: Row) -> Log:
    return (row["cluster"], row["topic"], row["partition"])


def _of(log: Log) -> pc.Expression:
    cluster, topic, partition = log
    return (pc.field("cluster") == cluster) & (pc.field("topic") == topic) & (
        pc.field("partition") == partition
    )  # fmt: skip


def _gaps(spans: Sequence[Row]) -> Iterator[tuple[Log, Row, Row]]:
    """Yield each missing span between two whole ones, with its log and the span before it."""
    by_log: dict[Log, list[Row]] = defaultdict(list)
    for row in spans:
        by_log[_log(row)].append(row)
    for log, of_log in sorted(by_log.items()):
        for before, gap in missing_spans(of_log):
            yield log, before, gap


def _has_repeated_key(gold: Gold, log: Log, span: Row) -> bool:
    """Return True if two records at the end of a span have the same key.

    A cleaner would have removed the first one. It cleans a log from its beginning on, so it has not cleaned
    what follows either, and what is missing there was not compacted."""
    first = max(span["first_offset"], span["last_offset"] - WINDOW)
    wanted = _of(log) & (pc.field("offset") >= first) & (pc.field("offset") <= span["last_offset"])
    keys = [row["key"] for row in gold.matching("coordinator_record", wanted, ["key"])]
    return len(set(keys)) < len(keys)


def _beside(gold: Gold, log: Log, rows: Sequence[Row], gaps: Sequence[Row]) -> tuple[list[Beside], set[str]]:
    """Return the batches beside the damage of a coordinator's log, and the groups in its segments."""
    found: set[Beside] = set()
    groups: set[str] = set()
    for segment, some in itertools.groupby(sorted(rows, key=_segment), key=_segment):
        holes = list(some)
        where = _around([row["offset"] for row in holes])
        if segment >= 0:
            before = (pc.field("offset") >= segment - WINDOW) & (pc.field("offset") < segment)
            where = (pc.field("segment_base_offset") == segment) | before
        batches = _batches(gold, _of(log) & where, groups)
        picked = [batches.at_offset(row["offset"]) for row in holes]
        if segment >= 0:
            picked += [batches.at_position(segment, row["file_position"]) for row in holes]
            picked.append(
                _batches(gold, _of(log) & _behind(batches.last), groups).at_offset(batches.last + 1)
            )
        found.update(*picked)
    for gap in gaps:
        ends = [gap["first_offset"] - 1, gap["last_offset"] + 1]
        found.update(_batches(gold, _of(log) & _around(ends), groups).at_offset(ends[0]))
    return sorted(found), groups


def _segment(row: Row) -> int:
    return int(row["segment_base_offset"])


def _around(offsets: Sequence[int]) -> pc.Expression:
    first, last = min(offsets) - WINDOW, max(offsets) + WINDOW
    return (pc.field("offset") >= first) & (pc.field("offset") <= last)


def _behind(offset: int) -> pc.Expression:
    return (pc.field("offset") > offset) & (pc.field("offset") <= offset + WINDOW)


class _Batches:
    """Batches of a log as columns, in the order of offsets."""

    def __init__(self, columns: Sequence[Ints]) -> None:
        self.columns = columns
        self.last = int(columns[1].max()) if len(columns[1]) else -1

    def __repr__(self) -> str:
        return f"<{len(self.columns[0])} batches up to {self.last}>"

    def at_offset(self, offset: int) -> list[Beside]:
        """Return the batches next to an offset: one or two on each side."""
        return self._next_to(np.arange(len(self.columns[0])), self.columns[0], offset)

    def at_position(self, segment: int, position: int) -> list[Beside]:
        """Return the batches next to a position of a segment."""
        chosen = np.flatnonzero(self.columns[3] == segment)
        chosen = chosen[np.argsort(self.columns[4][chosen], kind="stable")]
        return self._next_to(chosen, self.columns[4][chosen], position)

    def _next_to(self, chosen: Ints, values: Ints, wanted: int) -> list[Beside]:
        at = int(np.searchsorted(values, wanted))
        near = chosen[max(at - 2, 0) : at + 2]
        return [Beside(*(int(column[i]) for column in self.columns)) for i in near]


def _batches(gold: Gold, wanted: pc.Expression, groups: set[str]) -> _Batches:
    """Read the batches of the selected records, and add the groups of these records to `groups`."""
    parts: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in _BESIDE]
    for batch in gold.batches("coordinator_record", wanted, [*_BESIDE, "group_id"]):
        groups.update(g for g in pc.unique(batch.column("group_id")).to_pylist() if g is not None)
        _, first = np.unique(batch.column(0).to_numpy(), return_index=True)
        for part, name in zip(parts, _BESIDE, strict=True):
            part.append(batch.column(name).to_numpy()[first])
    columns = [np.concatenate(part) for part in parts]
    _, first = np.unique(columns[0], return_index=True)
    return _Batches([column[first] for column in columns])


def _with_groups(gold: Gold, log: Log, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the group ids of those that are records."""
    offsets = sorted({row["offset"] for row in rows if row["offset"] >= 0})
    wanted = _of(log) & pc.field("offset").isin(offsets)
    columns = ["offset", "group_id"]
    found = {row["offset"]: row["group_id"] for row in gold.matching("coordinator_record", wanted, columns)}
    return [row | {"group_id": found.get(row["offset"])} for row in rows]


def _beside_audit(gold: Gold, log: Log, rows: Sequence[Row]) -> list[Beside]:
    """Return the rows of the audit topic beside its damage."""
    found: set[Beside] = set()
    wanted = (pc.field("cluster") == log[0]) & (pc.field("audit_partition") == log[2])
    read = gold.matching("audit_event", wanted, ["audit_offset", "timestamp_ms"])
    batches = sorted(Beside(row["audit_offset"], row["audit_offset"], row["timestamp_ms"]) for row in read)
    for row in rows:
        at = bisect_left(batches, row["offset"], key=lambda each: each.base_offset)
        found.update(batches[max(at - 1, 0) : at + 1])
    return sorted(found)
