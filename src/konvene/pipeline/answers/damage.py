"""Damage of the logs: what could not be read or was never found, and which rebalances may be missing for it.

Two tables have the facts: `quarantine` lists the batches and records that could not be read, `log_span` the
offsets that were found in no log. `assess` turns them into a list of `Damage`, one for each hole of a log.
The batches beside a hole determine its offsets and its time. `damaged` selects the rebalances that a hole may
have changed. Both are pure; `konvene.pipeline.answers.damage_tables` reads the tables.

Compaction removes records too, which is normal: compacted spans are no damage. Nor is an incomplete batch at
the end of a log, which a broker may be writing, or what another copy of the log has.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from konvene.pipeline.answers.cost import Key
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.row import Row
from konvene.plurals import counted

__all__ = [
    "CONSEQUENCES",
    "NOT_FOUND",
    "Beside",
    "Damage",
    "Log",
    "assess",
    "damaged",
    "kind_of",
    "missing_spans",
]

NOT_FOUND = "not found"
_KINDS = (
    ("checksum", re.compile("checksum")),
    ("unknown magic", re.compile(r"\bmagic ")),
    ("truncated", re.compile(r"longer than the log|\bare cut\b|has no end|\bare there\b")),
    ("unknown record version", re.compile(r"\bversion -?\d+ is not known")),
)
_MALFORMED = "malformed"
"""Kind of all other reasons."""
CONSEQUENCES = {
    OFFSETS_TOPIC: "rebalances",
    AUDIT_TOPIC: "causes of rebalances",
    SHARE_STATE_TOPIC: "deliveries of share groups",
    TRANSACTION_TOPIC: "names of transactional producers",
}
"""What may be missing, by the topic whose log is damaged."""
MAX_NAMES = 3
_HEADER_SIZE = 61
_PREFIX_SIZE = 12

Log = tuple[str, str, int]
"""Cluster, topic and partition."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A hole in a log: batches or records that could not be read, or offsets that were found in no log."""

    cluster: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int | None
    """None if it is not known: the hole reaches to the end of what was read."""
    kinds: tuple[str, ...]
    """`checksum`, `unknown magic`, `truncated`, `malformed`, `unknown record version`, or `not found`."""
    batches: int = 0
    records: int = 0
    """Single records that could not be decoded; those of unreadable batches are not counted."""
    bytes: int = 0
    from_ms: int | None = None
    """Time of the last record before the hole; of the first record, for single records."""
    until_ms: int | None = None
    """Time of the first record after it; None if there is none."""
    groups: tuple[str, ...] = ()
    """Known groups whose records are in this log; the groups of single records alone if that is all."""
    recovered: bool = False
    """Whether another copy of the log had the records, so that none is missing."""
    rebalances: int = 0
    """Number of rebalances that it may have changed, and of these with the evidence `missing`."""
    missing: int = 0

    @property
    def log(self) -> Log:
        return (self.cluster, self.topic, self.partition)

    @property
    def key(self) -> tuple[str, str, int, int, tuple[str, ...]]:
        """Identifies the hole while the log grows."""
        return (*self.log, self.first_offset, self.kinds)

    def concerns(self, groups: Sequence[str], since_ms: int | None = None) -> bool:
        """Return True if one of these groups may be concerned (empty: any group), since a time if given."""
        if since_ms is not None and self.until_ms is not None and self.until_ms < since_ms:
            return False
        return not groups or self.topic != OFFSETS_TOPIC or bool(set(groups) & set(self.groups))

    def document(self) -> dict[str, object]:
        return {
            "cluster": self.cluster, "topic": self.topic, "partition": self.partition,
            "first_offset": self.first_offset, "last_offset": self.last_offset, "reasons": list(self.kinds),
            "batches": self.batches, "records": self.records, "bytes": self.bytes, "from_ms": self.from_ms,
            "until_ms": self.until_ms, "groups": list(self.groups), "recovered": self.recovered,
            "rebalances": self.rebalances, "missing": self.missing,
        }  # fmt: skip


class Beside(NamedTuple):
    """A batch of a log that was read, next to a hole: its offsets, its time, and its place in a segment."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    segment: int = -1
    position: int = -1


def kind_of(reason: str) -> str:
    """Return the kind of a reason of `quarantine`."""
    return next((kind for kind, pattern in _KINDS if pattern.search(reason)), _MALFORMED)


def assess(
    quarantine: Iterable[Row], spans: Iterable[Row], read: Mapping[Log, Sequence[Beside]],
    groups: Mapping[Log, Iterable[str]] | None = None, uncleaned: Iterable[tuple[Log, int]] = (),
) -> list[Damage]:  # fmt: skip
    """Return the damage of all logs, by log and offset.

    `read` has the batches beside the damage, in the order of offsets. `groups` are the known groups of each
    log. `uncleaned` names spans, by log and first offset, that compaction cannot have thinned: only behind
    them a missing span is damage."""
    rows: dict[Log, list[Row]] = defaultdict(list)
    for row in quarantine:
        rows[_log(row)].append(row)
    by_log: dict[Log, list[Row]] = defaultdict(list)
    for row in spans:
        by_log[_log(row)].append(row)
    sure = set(uncleaned)
    found: list[Damage] = []
    for log in sorted({*rows, *by_log}):
        batches = read.get(log, ())
        holes = _merged(_hole(row, batches) for row in rows.get(log, ()) if _is_batch(row))
        gaps = [
            _gap(before, gap, batches)
            for before, gap in missing_spans(by_log.get(log, ()))
            if (log, before["first_offset"]) in sure
        ]
        holes += [gap for gap in gaps if not any(_overlap(gap, hole) for hole in holes)]
        records = _records([row for row in rows.get(log, ()) if not _is_batch(row)], batches)
        known = tuple(sorted((groups or {}).get(log, ())))
        found += [replace(each, groups=each.groups or known) for each in (*holes, *records)]
    return sorted(found, key=lambda each: each.key)


def missing_spans(spans: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield each missing span between two whole ones, after the one before it.

    Beside compacted spans a missing one is normal: of the end of a cleaned segment nothing may be left."""
    ordered = sorted(spans, key=lambda row: int(row["first_offset"]))
    for before, gap, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
        if gap["kind"] == "missing" and before["kind"] == after["kind"] == "whole":
            yield before, gap


def _log(row: Row) -> Log:
    return (row["cluster"], row["topic"], row["partition"])


def _is_batch(row: Row) -> bool:
    """Return True for a batch, or bytes that are none, and False for a record.

    The bytes of a batch begin with its base offset, those of a record with its key."""
    offset: int = row["offset"]
    return offset < 0 or bytes(row["bytes"][:8]) == offset.to_bytes(8, "big")


def _hole(row: Row, batches: Sequence[Beside]) -> Damage:
    before, after = _neighbours(row, batches)
    low = before.last_offset + 1 if before is not None else max(row["segment_base_offset"], 0)
    high = after.base_offset - 1 if after is not None else None
    claimed = _claimed(row)
    if high is not None and high < low:  # The batches beside it are those of another copy.
        low, high = claimed or (max(row["offset"], 0), None)
    first, last = low, high
    if claimed is not None and low <= claimed[0] and (high is None or claimed[1] <= high):
        first, last = claimed
    elif high is None and row["offset"] >= low and row["segment_base_offset"] < 0:
        first = row["offset"]
    inside = bisect_left(batches, first, key=lambda each: each.base_offset)
    recovered = inside < len(batches) and last is not None and batches[inside].base_offset <= last
    return Damage(
        *_log(row), first, last, (kind_of(row["reason"]),), batches=1, bytes=row["length"],
        from_ms=before.timestamp_ms if before is not None else None,
        until_ms=after.timestamp_ms if after is not None else None, recovered=recovered,
    )  # fmt: skip


def _neighbours(row: Row, batches: Sequence[Beside]) -> tuple[Beside | None, Beside | None]:
    """Return the batches before and after an unreadable one: by place in the segment, since an unreadable
    batch may name any offset; by offset if it was fetched."""
    segment, position, offset = row["segment_base_offset"], row["file_position"], row["offset"]
    if segment < 0:
        at = bisect_left(batches, offset, key=lambda each: each.base_offset)
        return batches[at - 1] if at else None, batches[at] if at < len(batches) else None
    before = [b for b in batches if b.segment == segment and b.position < position]
    after = [b for b in batches if b.segment == segment and b.position > position]
    earlier = [b for b in batches if b.base_offset < segment]
    last = before[-1].last_offset if before else segment - 1
    later = (b for b in batches if b.base_offset > last and b.segment > segment)
    return (
        before[-1] if before else earlier[-1] if earlier else None,
        after[0] if after else next(later, None),
    )


def _claimed(row: Row) -> tuple[int, int] | None:
    """Return the first and last offset that the header of an unreadable batch names; None without a
    plausible header."""
    head = row["bytes"]
    if len(head) < _HEADER_SIZE or head[16] != 2:
        return None
    base, length = int.from_bytes(head[:8], "big", signed=True), int.from_bytes(head[8:12], "big")
    delta = int.from_bytes(head[23:27], "big", signed=True)
    if length + _PREFIX_SIZE != row["length"] or base < 0 or delta < 0:
        return None
    return base, base + delta


def _merged(holes: Iterable[Damage]) -> list[Damage]:
    """Join holes that touch: neither has a readable batch between itself and the next."""
    found: list[Damage] = []
    for hole in sorted(holes, key=lambda each: each.first_offset):
        last = found[-1] if found else None
        touches = last is not None and (last.last_offset is None or hole.first_offset <= last.last_offset + 1)
        if last is None or not touches or last.recovered != hole.recovered:
            found.append(hole)
            continue
        open_end = last.last_offset is None or hole.last_offset is None
        found[-1] = replace(
            last,
            last_offset=None if open_end else max(last.last_offset or 0, hole.last_offset or 0),
            kinds=tuple(sorted({*last.kinds, *hole.kinds})),
            batches=last.batches + hole.batches,
            bytes=last.bytes + hole.bytes,
            until_ms=hole.until_ms,
        )
    return found


def _gap(before: Row, gap: Row, batches: Sequence[Beside]) -> Damage:
    at = bisect_left(batches, gap["first_offset"], key=lambda each: each.base_offset)
    return Damage(
        *_log(gap), gap["first_offset"], gap["last_offset"], (NOT_FOUND,),
        from_ms=batches[at - 1].timestamp_ms if at else None,
        until_ms=batches[at].timestamp_ms if at < len(batches) else None,
    )  # fmt: skip


def _overlap(a: Damage, b: Damage) -> bool:
    ends = [each.last_offset if each.last_offset is not None else float("inf") for each in (a, b)]
    return a.first_offset <= ends[1] and b.first_offset <= ends[0]


def _records(rows: Sequence[Row], batches: Sequence[Beside]) -> Iterator[Damage]:
    """Yield one `Damage` for the undecodable records of each kind."""
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[kind_of(row["reason"])].append(row)
    for kind, some in sorted(by_kind.items()):
        first, last = min(row["offset"] for row in some), max(row["offset"] for row in some)
        times = [b.timestamp_ms for b in batches if b.last_offset >= first and b.base_offset <= last]
        groups = {row["group_id"] for row in some if row.get("group_id")}
        yield Damage(
            *_log(some[0]), first, last, (kind,), records=len(some), bytes=sum(row["length"] for row in some),
            from_ms=min(times, default=None), until_ms=max(times, default=None), groups=tuple(sorted(groups)),
        )  # fmt: skip


def sentence(damage: Damage) -> str:
    """Return a sentence about a hole: what could not be read, and what may be missing because of it."""
    what = _what(damage)
    where = f"{damage.topic}-{damage.partition}"
    missing = CONSEQUENCES.get(damage.topic, "records")
    if damage.kinds == (NOT_FOUND,):
        found = f"{what} of {where} {'was' if what.startswith('offset ') else 'were'} not found in the logs"
    else:
        offsets = f"{_offset_range(damage)}, " if damage.records == 0 else ""
        found = f"{what} of {where} could not be read ({offsets}{', '.join(damage.kinds)})"
    if damage.topic == OFFSETS_TOPIC and damage.groups:
        of = "the groups" if damage.records else "groups"
        missing += f" of {of} in that partition ({_few(damage.groups)})"
    beside = f"; {counted(damage.rebalances, 'rebalance')} next to it may be incomplete"
    return f"{found}: {missing} may be missing{_when(damage)}{beside if damage.rebalances else ''}."


def _what(damage: Damage) -> str:
    if damage.kinds == (NOT_FOUND,):
        return _offset_range(damage)
    return counted(damage.records, "record") if damage.records else counted(damage.batches, "batch")


def _offset_range(damage: Damage) -> str:
    first, last = damage.first_offset, damage.last_offset
    if last is None:
        return f"offsets from {first} on"
    return f"offset {first}" if first == last else f"offsets {first}-{last}"


def _when(damage: Damage) -> str:
    if damage.from_ms is None:
        return "" if damage.until_ms is None else f" before {_iso(damage.until_ms)}"
    if damage.until_ms is None:
        return f" since {_iso(damage.from_ms)}"
    return f" between {_iso(damage.from_ms)} and {_iso(damage.until_ms)}"


def _iso(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"


def _few(groups: Sequence[str]) -> str:
    more = f" and {len(groups) - MAX_NAMES} more" if len(groups) > MAX_NAMES else ""
    return ", ".join(groups[:MAX_NAMES]) + more


# --- rebalances -----------------------------------------------------------------------------------


def damaged(rebalances: Iterable[Rebalance], damage: Sequence[Damage]) -> dict[Key, Damage]:
    """Return the rebalances, by key, that damage of their log may have changed, each with that damage.

    These are the rebalances of a group that a hole lies in, or between it and the one before; the ones that
    follow for as long as their evidence is `missing`, and the first one after these, whose cause may rest on
    what is missing. `rebalances` are all of the groups concerned."""
    holes: dict[tuple[str, int], list[Damage]] = defaultdict(list)
    for each in damage:
        if each.topic == OFFSETS_TOPIC and not each.recovered:
            holes[each.cluster, each.partition].append(each)
    by_group: dict[tuple[str, int, str], list[Rebalance]] = defaultdict(list)
    for r in rebalances:
        if (r.cluster, r.log_partition) in holes:
            by_group[r.cluster, r.log_partition, r.group_id].append(r)
    found: dict[Key, Damage] = {}
    for (cluster, partition, group), rows in by_group.items():
        rows.sort(key=lambda r: (r.base_offset, r.last_offset, r.to_epoch))
        for hole in holes[cluster, partition]:
            if not hole.records or group in hole.groups:
                found |= {r.key: hole for r in _changed(rows, hole)}
    return found


def _changed(rows: Sequence[Rebalance], hole: Damage) -> Iterator[Rebalance]:
    """Yield the rebalances of one group, in log order, that a hole may have changed."""
    last_offset = hole.last_offset if hole.last_offset is not None else hole.first_offset
    before, lost, unknown = -1, False, False
    for r in rows:
        ends = max(r.last_offset, r.base_offset)
        is_new = before < 0 and r.from_epoch == 0 and r.evidence != "missing" and r.base_offset > last_offset
        is_beside = before < last_offset and ends >= hole.first_offset and not is_new
        lost = is_beside or (lost and (unknown or r.evidence == "missing"))
        unknown = r.evidence == "missing"
        if lost:
            yield r
        before = max(before, ends)
