"""Logs of `__consumer_offsets` as lists of batches, their compaction, and the rebalances inferred from
them."""

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
    """A record with its offset; `record` is None if it is not a record of a group."""

    offset: int
    timestamp_ms: int
    key: Any
    record: Any

    @property
    def is_tombstone(self) -> bool:
        return self.record is not None and self.record.value is None


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    entries: tuple[Entry, ...]


def golden(name: str) -> dict[int, list[Batch]]:
    """Return the batches of a recorded log of Apache Kafka, by partition."""
    found: dict[int, list[Batch]] = {}
    for directory in sorted((LOGS / name).glob("__consumer_offsets-*")):
        log = found[int(directory.name.rpartition("-")[2])] = []
        for file in sorted(directory.glob("*.log")):
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
    """Return the log after compaction of its batches from `begin` to before `end`; empty batches are
    dropped."""
    last = {e.key: e.offset for batch in log[begin:end] for e in batch.entries}
    remaining = []
    for batch in log[begin:end]:
        entries = tuple(
            e for e in batch.entries if last[e.key] == e.offset and (tombstones or not e.is_tombstone)
        )
        if entries:
            remaining.append(batch._replace(entries=entries))
    return [*log[:begin], *remaining, *log[end:]]


def infer_rebalances(
    log: Sequence[Batch], partition: int = 0, batches: bool = True
) -> list[tuple[str, RebalanceValue]]:
    """Return the inferred rebalances; without `batches` the reader does not get the batch boundaries."""
    history = History(partition)
    rows = []
    for batch in log:
        if batches:
            history.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            found = history.take(entry.offset, entry.timestamp_ms, entry.record)
            if found is not None:
                rows.append((found.group_id, found.value))
    return rows


def contradictions(
    fewer: Sequence[tuple[str, RebalanceValue]], full: Sequence[tuple[str, RebalanceValue]]
) -> list[str]:
    """Return rows of a compacted log that contradict the whole log's rows. Missing details do not
    contradict."""
    whole = {(group, row.last_offset): row for group, row in full}
    found = []
    for group, row in fewer:
        expected = whole.get((group, row.last_offset))
        if expected is None:
            found.append(f"{group}: no such row: {row}")
            continue
        known_causes = [c for c in row.causes if c.kind != "unknown"]
        completed = row.replace(
            causes=expected.causes,
            base_offset=expected.base_offset,
            started_ms=row.started_ms if row.started_ms >= 0 else expected.started_ms,
            moved=row.moved if row.moved else expected.moved,
        )
        if completed != expected or any(c not in expected.causes for c in known_causes):
            found.append(f"{group}: {row} contradicts {expected}")
    return found
