"""Deliveries of share groups: the share states of one log partition, in log order.

    share_delivery   for each share partition, its last state and the totals that led to it
    share_progress   the same for each minute in which a record was written

`reduce.deliveries` interprets a record. The code here turns silver's rows back into records, and states into
rows. A minute's row is written when a later record of its partition shows that it is over; a record with a
time before the minute of the last record counts in that minute, so clocks that disagree do not yield a second
row.

States are written when a delivery is acknowledged. No record shows which records a member has acquired, so no
column here does.

Memory: the state of each partition of a group, and some thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.reduce.deliveries import Counts, SharePartitionHistory, Value
from konvene.pipeline.reduce.ownership import Row
from konvene.pipeline.tables import TABLES
from konvene.records.share_state import ShareSnapshotValue, ShareUpdateValue
from konvene.share_state.requests import StateBatch

__all__ = ["delivery_rows"]

MINUTE_MS = 60_000
_ROWS = 4096
_KEY = ("cluster", "group_id", "topic_id", "partition")
_COMMON = ("snapshot_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
_OF_SNAPSHOTS = ("state_epoch", "create_timestamp", "write_timestamp")

Key = tuple[str, str, str, int]
"""Cluster, group, topic id, partition."""


class _Record(NamedTuple):
    offset: int
    ms: int
    key: Key
    value: Value | None
    """None for a tombstone."""


@dataclass(slots=True)
class _Minute:
    """The current minute of a share partition: that of its last record, with the totals before it."""

    minute_ms: int
    before: Counts
    start_offset: int | None = None
    """Start offset before the minute; None if the partition was unknown, or its history restarted since."""
    records: int = 0
    follows_snapshot: bool = True


@dataclass(slots=True)
class _Partition:
    history: SharePartitionHistory
    minute: _Minute | None = None


@dataclass(slots=True)
class _Progress:
    """Buffer of the rows of minutes that are over, which are passed to `watch` in batches."""

    watch: Callable[[pa.RecordBatch], None] | None
    names: Mapping[str, str]
    rows: list[Row] = field(default_factory=list)

    def put(self, key: Key, partition: _Partition) -> None:
        if self.watch is not None and partition.minute is not None:
            self.rows.append(_minute_row(key, partition.history, partition.minute, self.names))
            if len(self.rows) >= _ROWS:
                self.flush()

    def flush(self) -> None:
        if self.watch is not None and self.rows:
            self.watch(TABLES["share_progress"].batch(self.rows))
        self.rows.clear()


def delivery_rows(
    share_snapshot: Iterable[pa.RecordBatch],
    share_update: Iterable[pa.RecordBatch],
    names: Mapping[str, str] | None = None,
    watch: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `share_delivery` of one log partition, sorted by key, and pass those of
    `share_progress` to `watch`.

    The batches are those of the silver tables of these names, in log order; `names` are topic names by id."""
    partitions: dict[Key, _Partition] = {}
    progress = _Progress(watch, names or {})
    by_offset = attrgetter("offset")
    for record in merge(
        _records(share_snapshot, _snapshots), _records(share_update, _updates), key=by_offset
    ):
        partition = partitions.get(record.key)
        if partition is None:
            partition = partitions[record.key] = _Partition(SharePartitionHistory(record.ms))
        _apply(partition, record, progress)
    for key in sorted(partitions):
        progress.put(key, partitions[key])
    progress.flush()
    rows = [_row(key, partition.history, progress.names) for key, partition in partitions.items()]
    if rows:
        yield TABLES["share_delivery"].batch(sorted(rows, key=lambda row: row[:4]))


def _apply(partition: _Partition, record: _Record, progress: _Progress) -> None:
    """Apply a record to its share partition; if it begins a new minute, pass the last one to `progress`."""
    history, minute = partition.history, partition.minute
    begins_ms = record.ms - record.ms % MINUTE_MS
    if minute is None or begins_ms > minute.minute_ms:
        progress.put(record.key, partition)
        known = history.known
        minute = partition.minute = _Minute(
            begins_ms, history.counts.copy(), None if known is None else known.start_offset
        )
    history.take(record.ms, record.value)
    minute.records += 1
    minute.follows_snapshot &= history.follows_snapshot
    if history.restarted:
        minute.start_offset = None


# --- from silver ----------------------------------------------------------------------------------


def _records(
    batches: Iterable[pa.RecordBatch], values: Callable[[pa.RecordBatch], Iterator[Value]]
) -> Iterator[_Record]:
    """Yield a record per row; whole columns are converted at a time, which is faster."""
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS):
            rows = batch.slice(at, _ROWS)
            keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
            columns = (rows[name].to_pylist() for name in ("offset", "timestamp_ms", "tombstone"))
            for key, offset, ms, tombstone, value in zip(keys, *columns, values(rows), strict=True):
                yield _Record(offset, ms, key, None if tombstone else value)


def _snapshots(rows: pa.RecordBatch) -> Iterator[Value]:
    numbers = (_column(rows, name) for name in (*_COMMON, *_OF_SNAPSHOTS))
    for batches, snapshot, leader, start, complete, state, created_ms, written_ms in zip(
        _batches(rows["state_batches"]), *numbers, strict=True
    ):
        yield ShareSnapshotValue(
            snapshot_epoch=snapshot, state_epoch=state, leader_epoch=leader, start_offset=start,
            delivery_complete_count=complete, create_timestamp=created_ms, write_timestamp=written_ms,
            state_batches=batches,
        )  # fmt: skip


def _updates(rows: pa.RecordBatch) -> Iterator[Value]:
    numbers = (_column(rows, name) for name in _COMMON)
    for batches, snapshot, leader, start, complete in zip(
        _batches(rows["state_batches"]), *numbers, strict=True
    ):
        yield ShareUpdateValue(
            snapshot_epoch=snapshot, leader_epoch=leader, start_offset=start,
            delivery_complete_count=complete, state_batches=batches,
        )  # fmt: skip


def _column(rows: pa.RecordBatch, name: str) -> list[int]:
    """Return a column of numbers, with -1 for nulls: these occur in tombstones only and are not used."""
    values: list[int] = pc.fill_null(rows[name], -1).to_pylist()
    return values


def _batches(column: pa.ListArray) -> Iterator[Any]:
    """Yield the state batches of each row, as a tuple."""
    fields = column.flatten().flatten()
    all_batches = list(map(StateBatch, *(values.to_pylist() for values in fields)))
    at = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        yield tuple(all_batches[at : at + length])
        at += length


# --- to gold --------------------------------------------------------------------------------------


def _row(key: Key, history: SharePartitionHistory, names: Mapping[str, str]) -> Row:
    cluster, group_id, topic_id, partition = key
    state, counts, flight = history.state, history.counts, history.in_flight()
    return (
        cluster, group_id, names.get(topic_id, topic_id), partition,
        state.state_epoch if state is not None and history.knows_epoch else None,
        -1 if state is None else state.start_offset,
        counts.delivered, counts.redelivered, counts.acknowledged, counts.released, counts.archived,
        flight.available + flight.archiving, flight.available, flight.archiving, flight.unknown,
        flight.most_deliveries, _complete(history), history.max_delivery_count, history.snapshots,
        history.updates,
        history.first_ms, history.last_ms, history.moved_ms, history.deleted_ms,
        "observed" if history.whole else "missing",
    )  # fmt: skip


def _minute_row(key: Key, history: SharePartitionHistory, minute: _Minute, names: Mapping[str, str]) -> Row:
    cluster, group_id, topic_id, partition = key
    state, counts, flight = history.known, history.counts.since(minute.before), history.in_flight()
    if state is None:
        flight = flight._replace(available=0, archiving=0, unknown=0, most_deliveries=0)
    start, before = None if state is None else state.start_offset, minute.start_offset
    return (
        cluster, group_id, names.get(topic_id, topic_id), partition, minute.minute_ms, start,
        None if start is None or before is None else start - before,
        None if state is None else _complete(history), counts.delivered, counts.redelivered,
        counts.acknowledged, counts.released, counts.archived, flight.available, flight.archiving,
        flight.unknown, flight.most_deliveries, minute.records, history.last_ms,
        "observed" if minute.follows_snapshot else "missing",
    )  # fmt: skip


def _complete(history: SharePartitionHistory) -> int | None:
    """Return the number of completed records after the start offset, as the coordinator counted; None if
    unknown."""
    if history.state is None or history.state.delivery_complete_count < 0:
        return None
    return history.state.delivery_complete_count
