"""Logs of `__consumer_offsets` as lists of batches, what compaction leaves of them, and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from konvene.codec import batches as rb
from konvene.groups.history import History
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import GROUP_RECORDS, decode_record

LOGS = Path(__file__).parents[2] / "vectors" / "logs"


class Entry(NamedTuple):
    """A record: `said` is a `Record`, or None for what is no record of a group."""

    offset: int
    timestamp_ms: int
    key: Any
    said: Any

    @property
    def is_tombstone(self) -> bool:
        return self.said is not None and self.said.value is None


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    entries: tuple[Entry, ...]


def golden(name: str) -> dict[int, list[Batch]]:
    """What Apache Kafka wrote, by partition."""
    found: dict[int, list[Batch]] = {}
    for place in sorted((LOGS / name).glob("__consumer_offsets-*")):
        log = found[int(place.name.rpartition("-")[2])] = []
        for file in sorted(place.glob("*.log")):
            for header, batch in rb.batches(file.read_bytes()):
                entries = tuple(
                    Entry(r.offset, r.timestamp, r.key, decode_record(r.key, r.value, GROUP_RECORDS))
                    if r.key is not None and not header.is_control
                    else Entry(r.offset, r.timestamp, (r.offset,), None)
                    for r in rb.records(batch, header)
                )
                log.append(Batch(header.base_offset, header.last_offset, entries))
    return found


def compacted(log: Sequence[Batch], begin: int, end: int, tombstones: bool = True) -> list[Batch]:
    """The log after its batches from `begin` to before `end` were compacted. Empty batches go."""
    last = {e.key: e.offset for batch in log[begin:end] for e in batch.entries}
    left = []
    for batch in log[begin:end]:
        kept = tuple(
            e for e in batch.entries if last[e.key] == e.offset and (tombstones or not e.is_tombstone)
        )
        if kept:
            left.append(batch._replace(entries=kept))
    return [*log[:begin], *left, *log[end:]]


def told(log: Sequence[Batch], partition: int = 0, batches: bool = True) -> list[tuple[str, RebalanceValue]]:
    """The rows that are derived; without `batches` the reader is not told where they begin."""
    history = History(partition)
    rows = []
    for batch in log:
        if batches:
            history.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            found = history.take(entry.offset, entry.timestamp_ms, entry.said)
            if found is not None:
                rows.append((found.group_id, found.value))
    return rows


def contradictions(
    fewer: Sequence[tuple[str, RebalanceValue]], full: Sequence[tuple[str, RebalanceValue]]
) -> list[str]:
    """Rows of a compacted log that the whole log's rows contradict. To know less is no contradiction."""
    whole = {(group, row.last_offset): row for group, row in full}
    found = []
    for group, row in fewer:
        true = whole.get((group, row.last_offset))
        if true is None:
            found.append(f"{group}: no such row: {row}")
            continue
        kinds = [c for c in row.causes if c.kind != "unknown"]
        less = row.replace(
            causes=true.causes,
            base_offset=true.base_offset,
            started_ms=row.started_ms if row.started_ms >= 0 else true.started_ms,
            moved=row.moved if row.moved else true.moved,
        )
        if less != true or any(c not in true.causes for c in kinds):
            found.append(f"{group}: {row} contradicts {true}")
    return found
