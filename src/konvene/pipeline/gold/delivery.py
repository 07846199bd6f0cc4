"""What became of the records of share groups: the share states of one log partition, taken in order.

    share_delivery   for each share partition, what its state says in the end, and all that led there
    share_progress   the same minute by minute, wherever a record was written in it

What a record says is for `reduce.deliveries`. Here silver's rows become its records again, and what is known
becomes rows. The rows of minutes leave when a later record of their partition shows that they are over, in
the order in which that happens; a record whose time lies before the minute of the last one counts in that
minute, so clocks that disagree make no second row of a minute.

States are written when a delivery is answered for. Of what is held by a member no record tells, so nothing
here claims to know it.

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

from konvene.pipeline.reduce.deliveries import Counts, Life, Value
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
Row = tuple[Any, ...]


class _Record(NamedTuple):
    offset: int
    ms: int
    key: Key
    value: Value | None
    """None of a tombstone."""


@dataclass(slots=True)
class _Minute:
    """A minute of a share partition that is not over."""

    minute_ms: int
    before: Counts
    start_offset: int | None = None
    """Before it; None: nothing was known of the partition, or it began anew since."""
    records: int = 0
    is_sure: bool = True


@dataclass(slots=True)
class _Partition:
    life: Life
    minute: _Minute | None = None


@dataclass(slots=True)
class _Progress:
    """Rows of minutes that are over."""

    watch: Callable[[pa.RecordBatch], None] | None
    names: Mapping[str, str]
    rows: list[Row] = field(default_factory=list)

    def put(self, key: Key, part: _Partition) -> None:
        if self.watch is not None and part.minute is not None:
            self.rows.append(_minute_row(key, part.life, part.minute, self.names))
            if len(self.rows) >= _ROWS:
                self.flush()

    def flush(self) -> None:
        if self.watch is not None and self.rows:
            self.watch(_batch_of("share_progress", self.rows))
        self.rows.clear()


def delivery_rows(
    share_snapshot: Iterable[pa.RecordBatch],
    share_update: Iterable[pa.RecordBatch],
    names: Mapping[str, str] | None = None,
    watch: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of `share_delivery` of one log partition, sorted by their key; `watch` is given those of
    `share_progress`.

    The batches are those of silver's tables of these names, in the order of the log; `names` are topics'
    names by their ids.
    """
    parts: dict[Key, _Partition] = {}
    progress = _Progress(watch, names or {})
    by_offset = attrgetter("offset")
    for record in merge(
        _records(share_snapshot, _snapshots), _records(share_update, _updates), key=by_offset
    ):
        part = parts.get(record.key)
        if part is None:
            part = parts[record.key] = _Partition(Life(record.ms))
        _take(part, record, progress)
    for key in sorted(parts):
        progress.put(key, parts[key])
    progress.flush()
    rows = [_row(key, part.life, progress.names) for key, part in parts.items()]
    if rows:
        yield _batch_of("share_delivery", sorted(rows, key=lambda row: row[:4]))


def _take(part: _Partition, record: _Record, progress: _Progress) -> None:
    """A record, in its minute."""
    life, minute = part.life, part.minute
    begins_ms = record.ms - record.ms % MINUTE_MS
    if minute is None or begins_ms > minute.minute_ms:
        progress.put(record.key, part)
        known = life.known
        minute = part.minute = _Minute(
            begins_ms, life.counts.copy(), None if known is None else known.start_offset
        )
    life.take(record.ms, record.value)
    minute.records += 1
    minute.is_sure &= life.is_sure
    if life.is_anew:
        minute.start_offset = None


# --- from silver ----------------------------------------------------------------------------------


def _records(
    batches: Iterable[pa.RecordBatch], values: Callable[[pa.RecordBatch], Iterator[Value]]
) -> Iterator[_Record]:
    """A value for each row; columns are turned one by one, which is faster than row by row."""
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS):
            rows = batch.slice(at, _ROWS)
            keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
            columns = (rows[name].to_pylist() for name in ("offset", "timestamp_ms", "tombstone"))
            for key, offset, ms, tombstone, value in zip(keys, *columns, values(rows), strict=True):
                yield _Record(offset, ms, key, None if tombstone else value)


def _snapshots(rows: pa.RecordBatch) -> Iterator[Value]:
    told = (_column(rows, name) for name in (*_COMMON, *_OF_SNAPSHOTS))
    for batches, snapshot, leader, start, complete, state, created_ms, written_ms in zip(
        _batches(rows["state_batches"]), *told, strict=True
    ):
        yield ShareSnapshotValue(
            snapshot_epoch=snapshot, state_epoch=state, leader_epoch=leader, start_offset=start,
            delivery_complete_count=complete, create_timestamp=created_ms, write_timestamp=written_ms,
            state_batches=batches,
        )  # fmt: skip


def _updates(rows: pa.RecordBatch) -> Iterator[Value]:
    told = (_column(rows, name) for name in _COMMON)
    for batches, snapshot, leader, start, complete in zip(
        _batches(rows["state_batches"]), *told, strict=True
    ):
        yield ShareUpdateValue(
            snapshot_epoch=snapshot, leader_epoch=leader, start_offset=start,
            delivery_complete_count=complete, state_batches=batches,
        )  # fmt: skip


def _column(rows: pa.RecordBatch, name: str) -> list[int]:
    """Numbers; what is null stands in a tombstone, and is not looked at."""
    values: list[int] = pc.fill_null(rows[name], -1).to_pylist()
    return values


def _batches(column: pa.ListArray) -> Iterator[Any]:
    """The state batches of each row, as the declaration's own."""
    fields = column.flatten().flatten()
    every = list(map(StateBatch, *(part.to_pylist() for part in fields)))
    at = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        yield tuple(every[at : at + length])
        at += length


# --- to gold --------------------------------------------------------------------------------------


def _row(key: Key, life: Life, names: Mapping[str, str]) -> Row:
    cluster, group_id, topic_id, partition = key
    state, counts, flight = life.state, life.counts, life.in_flight()
    return (
        cluster, group_id, names.get(topic_id, topic_id), partition,
        state.state_epoch if state is not None and life.knows_epoch else None,
        -1 if state is None else state.start_offset,
        counts.delivered, counts.redelivered, counts.acknowledged, counts.released, counts.archived,
        flight.available + flight.archiving, flight.available, flight.archiving, flight.untold,
        flight.most_deliveries, _complete(life), life.max_delivery_count, life.snapshots, life.updates,
        life.first_ms, life.last_ms, life.moved_ms, life.deleted_ms,
        "observed" if life.whole else "missing",
    )  # fmt: skip


def _minute_row(key: Key, life: Life, minute: _Minute, names: Mapping[str, str]) -> Row:
    cluster, group_id, topic_id, partition = key
    state, counts, flight = life.known, life.counts.since(minute.before), life.in_flight()
    if state is None:
        flight = flight._replace(available=0, archiving=0, untold=0, most_deliveries=0)
    start, before = None if state is None else state.start_offset, minute.start_offset
    return (
        cluster, group_id, names.get(topic_id, topic_id), partition, minute.minute_ms, start,
        None if start is None or before is None else start - before,
        None if state is None else _complete(life), counts.delivered, counts.redelivered,
        counts.acknowledged, counts.released, counts.archived, flight.available, flight.archiving,
        flight.untold, flight.most_deliveries, minute.records, life.last_ms,
        "observed" if minute.is_sure else "missing",
    )  # fmt: skip


def _complete(life: Life) -> int | None:
    """What the coordinator itself says is done with behind the start."""
    if life.state is None or life.state.delivery_complete_count < 0:
        return None
    return life.state.delivery_complete_count


def _batch_of(table: str, rows: list[Row]) -> pa.RecordBatch:
    schema = TABLES[table].schema
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
