"""What became of the records of share groups: the share states of one log partition, taken in order.

A snapshot says what the whole state is, an update what changed, and where the two tell of the same offset,
the larger delivery count wins, then the larger state, as in Kafka's coordinator. Here the state is kept to
count what each record adds: a delivery whenever an offset's count grows, an acknowledgement whenever it comes
to that state, and so on. A snapshot that only repeats what is known adds nothing; one with another state
epoch, or whose start lies before the known one, begins the story anew, and what happened before still counts.

States are written when a delivery is answered for. Of what is held by a member no record tells, so nothing
here claims to know it. Snapshots are numbered: the first one of a state is 0, and where one of them is
missing, or an update comes before any, the evidence is `missing`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.tables import TABLES

__all__ = ["delivery_rows"]

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
UNCHANGED = -1
"""The start offset of an update that says nothing of it."""
_ROWS = 4096
_KEY = ("cluster", "group_id", "topic_id", "partition")
_FIELDS = (
    "offset", "timestamp_ms", "tombstone", "snapshot_epoch", "start_offset", "delivery_complete_count",
)  # fmt: skip


class _Batch(NamedTuple):
    """Offsets of one state and delivery count."""

    first: int
    last: int
    state: int
    times: int


class _Record(NamedTuple):
    offset: int
    ms: int
    key: tuple[str, str, str, int]
    """Cluster, group, topic id, partition."""
    kind: str
    """`snapshot`, `update` or `tombstone`."""
    snapshot_epoch: int
    state_epoch: int | None
    start_offset: int
    complete_count: int | None
    batches: Sequence[_Batch]


@dataclass(slots=True)
class _Told:
    """What is known of one partition of a group by now."""

    first_ms: int
    last_ms: int = 0
    deleted_ms: int | None = None
    whole: bool = True
    snapshot_epoch: int = -1
    state_epoch: int | None = None
    start_offset: int = UNCHANGED
    complete_count: int | None = None
    batches: list[_Batch] = field(default_factory=list)
    """Sorted; nothing before the start."""
    delivered: int = 0
    acknowledged: int = 0
    released: int = 0
    archived: int = 0
    max_delivery_count: int = 0
    snapshots: int = 0
    updates: int = 0


def delivery_rows(
    share_snapshot: Iterable[pa.RecordBatch],
    share_update: Iterable[pa.RecordBatch],
    names: Mapping[str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of `share_delivery` of one log partition, sorted by their key.

    The batches are those of silver's tables of these names, in the order of the log; `names` are topics'
    names by their ids.
    """
    states: dict[tuple[str, str, str, int], _Told] = {}
    for record in merge(_snapshots(share_snapshot), _updates(share_update)):
        told = states.get(record.key)
        if told is None:
            told = states[record.key] = _Told(record.ms)
        _take(told, record)
    rows = [_row(key, told, names or {}) for key, told in states.items()]
    if rows:
        schema = TABLES["share_delivery"].schema
        columns = zip(*sorted(rows, key=lambda row: row[:4]), strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _snapshots(batches: Iterable[pa.RecordBatch]) -> Iterator[_Record]:
    return _records(batches, "snapshot")


def _updates(batches: Iterable[pa.RecordBatch]) -> Iterator[_Record]:
    return _records(batches, "update")


def _records(batches: Iterable[pa.RecordBatch], kind: str) -> Iterator[_Record]:
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS):
            yield from _some_records(batch.slice(at, _ROWS), kind)


def _some_records(rows: pa.RecordBatch, kind: str) -> Iterator[_Record]:
    """A value for each row; columns are turned one by one, which is faster than row by row."""
    keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
    epochs = rows["state_epoch"].to_pylist() if kind == "snapshot" else [None] * rows.num_rows
    columns = (rows[name].to_pylist() for name in _FIELDS)
    told = zip(keys, epochs, _batches(rows["state_batches"]), *columns, strict=True)
    for key, state_epoch, batches, offset, ms, tombstone, snapshot_epoch, start_offset, complete in told:
        if tombstone:
            yield _Record(offset, ms, key, "tombstone", -1, None, UNCHANGED, None, ())
        else:
            known = None if complete is None or complete < 0 else complete
            yield _Record(offset, ms, key, kind, snapshot_epoch, state_epoch, start_offset, known, batches)


def _batches(column: pa.ListArray) -> Iterator[list[_Batch]]:
    """The state batches of each row."""
    fields = column.flatten().flatten()
    every = list(map(_Batch, *(field.to_pylist() for field in fields)))
    at = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        yield every[at : at + length]
        at += length


def _take(told: _Told, record: _Record) -> None:
    """Let a record count."""
    told.last_ms = record.ms
    if record.kind == "tombstone":
        told.deleted_ms, told.snapshot_epoch = record.ms, -1
        return
    if record.kind == "snapshot":
        told.snapshots += 1
        told.whole &= record.snapshot_epoch in (told.snapshot_epoch + 1, 0)
        if told.deleted_ms is not None or _begins_anew(told, record):
            told.batches, told.start_offset = [], UNCHANGED
        told.state_epoch, told.snapshot_epoch = record.state_epoch, record.snapshot_epoch
    else:
        told.updates += 1
        told.whole &= record.snapshot_epoch == told.snapshot_epoch
        told.snapshot_epoch = record.snapshot_epoch
    told.deleted_ms = None
    told.complete_count = record.complete_count
    for batch in record.batches:
        _lay(told, batch)
    if record.start_offset != UNCHANGED:
        told.start_offset = record.start_offset
        told.batches = [
            _from(batch, record.start_offset) for batch in told.batches if batch.last >= record.start_offset
        ]


def _begins_anew(told: _Told, snapshot: _Record) -> bool:
    known = told.state_epoch is not None
    return known and (snapshot.state_epoch != told.state_epoch or snapshot.start_offset < told.start_offset)


def _forget(told: _Told, start_offset: int) -> None:
    """What is before the start is done with."""
    known = told.batches
    gone = bisect_left(known, start_offset, key=_last)
    if gone:
        del known[:gone]
    if known and known[0].first < start_offset:
        known[0] = _from(known[0], start_offset)


def _last(batch: _Batch) -> int:
    return batch.last


def _from(batch: _Batch, start_offset: int) -> _Batch:
    return batch if batch.first >= start_offset else batch._replace(first=start_offset)


def _lay(told: _Told, batch: _Batch) -> None:
    """Lay a batch over what is known, and count what it adds."""
    if batch.last < told.start_offset:
        return
    batch = _from(batch, told.start_offset)
    told.max_delivery_count = max(told.max_delivery_count, batch.times)
    known = told.batches
    begin = bisect_left(known, batch.first, key=_last)
    if begin == len(known):
        known.append(_added(told, batch, batch.first, batch.last))
        return
    end, at = begin, batch.first
    made: list[_Batch] = []
    while end < len(known) and known[end].first <= batch.last:
        old = known[end]
        if old.first < at:
            made.append(old._replace(last=at - 1))
        elif old.first > at:
            made.append(_added(told, batch, at, old.first - 1))
            at = old.first
        upto = min(old.last, batch.last)
        if (batch.times, batch.state) > (old.times, old.state):
            made.append(_added(told, batch, at, upto, old))
        else:
            made.append(_Batch(at, upto, old.state, old.times))
        if old.last > batch.last:
            made.append(old._replace(first=batch.last + 1))
        at = upto + 1
        end += 1
    if at <= batch.last:
        made.append(_added(told, batch, at, batch.last))
    known[begin:end] = made


def _added(told: _Told, batch: _Batch, first: int, last: int, old: _Batch | None = None) -> _Batch:
    """Count a part of a batch that says something new."""
    records = last - first + 1
    told.delivered += records * (batch.times - (old.times if old else 0))
    if batch.state == AVAILABLE:
        told.released += records
    elif batch.state == ACKNOWLEDGED:
        told.acknowledged += records
    elif batch.state == ARCHIVED:
        told.archived += records
    if first == batch.first and last == batch.last:
        return batch
    return _Batch(first, last, batch.state, batch.times)


def _row(key: tuple[str, str, str, int], told: _Told, names: Mapping[str, str]) -> tuple[Any, ...]:
    cluster, group_id, topic_id, partition = key
    in_flight = sum(b.last - b.first + 1 for b in told.batches if b.state not in TERMINAL)
    known = sum(b.last - b.first + 1 for b in told.batches)
    untold = told.batches[-1].last + 1 - max(told.start_offset, 0) - known if told.batches else 0
    return (
        cluster, group_id, names.get(topic_id, topic_id), partition, told.state_epoch, told.start_offset,
        told.delivered, told.acknowledged, told.released, told.archived, in_flight, untold,
        told.complete_count, told.max_delivery_count, told.snapshots, told.updates, told.first_ms,
        told.last_ms, told.deleted_ms,
        "observed" if told.whole else "missing",
    )  # fmt: skip
