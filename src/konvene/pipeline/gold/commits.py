"""Effects of commits: silver's commits of one log partition, in the order in which they take effect.

A plain commit takes effect at its offset. One in a transaction takes effect at the transaction's marker, and
only if that is COMMIT; until then it is kept in memory. Of two commits for a partition the one later in the
log wins, even if the marker of the other comes after it, as in Kafka. A tombstone ends a key, whatever is
pending for it; so does the one that the coordinator writes for an expired commit.

Silver's rows do not have the transaction of a commit, but bronze's have the producer of each batch. So two
streams are read, both in log order: the commits from silver; and from bronze the offset, attributes,
producer, timestamp and key of records in transactional batches. `watch` receives the outcome of each
transactional commit when its transaction ends (`Ended`).

The result does not depend on how the streams are cut into batches. State grows with the number of keys in the
log, not with its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.arrays import (
    Bools,
    Ints,
    bools,
    first_behind,
    grown,
    ints,
    last_of_each,
    order_of,
    running_max,
)
from konvene.pipeline.gold.buckets import WHOLE_LOG, Bucket, commit_buckets
from konvene.pipeline.gold.keys import Keys
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import DataFile

__all__ = ["COMMITTED_SCHEMA", "PENDING", "Effects", "Ended", "committed", "effect_ms", "effects", "of_files"]

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT_MARKER = b"\x00\x00\x00\x01"
"""The key of a control record that commits: its version and type."""
PENDING, _ABORT, _COMMIT = -1, 0, 1
"""Outcomes of a transaction."""

_NONE: Ints = np.zeros(0, np.int64)

COMMITTED_SCHEMA = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("committed_offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("commit_ms", pa.int64(), nullable=False),
        pa.field("expire_ms", pa.int64(), nullable=False),
        pa.field("log_offset", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Commits and tombstones that took effect, in that order, as columns of the same length."""

    cluster: str
    keys: Keys
    key: Ints
    offset: Ints
    """The committed offset; -1 for a tombstone."""
    ms: Ints
    """When it took effect: the time of the record, or of the marker."""
    tombstone: Bools
    log_offset: Ints
    """Offset of the record."""
    rows: pa.Table
    """The rows of silver with these effects, for their other columns."""

    def __repr__(self) -> str:
        return f"<{len(self.key)} effects, {int(self.tombstone.sum())} tombstones>"


class Ended(NamedTuple):
    """A batch of transactional commits whose transactions ended, as columns of the same length.

    It is ordered by the offset of the marker that ended the transaction, then by the record's own. At the end
    of the log, one more batch has the commits that are still pending; their `offset` and `ms` are -1."""

    rows: pa.Table
    """Rows of silver with these commits."""
    producer: Ints
    epoch: Ints
    outcome: Ints
    offset: Ints
    """Offset of the marker."""
    ms: Ints
    """Timestamp of the marker."""
    counted: Bools
    """Whether the commit became the group's committed offset: not if it was aborted or a later one won."""


class _Marks(NamedTuple):
    """Rows of transactional batches as columns; `kind` is -1 for a commit, else the type of the marker."""

    offset: Ints
    producer: Ints
    epoch: Ints
    ms: Ints
    kind: Ints


_COLUMNS = pa.schema(
    [
        pa.field("cluster", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("tombstone", pa.bool_()),
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed_offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp", pa.int64()),
        pa.field("expire_timestamp", pa.int64()),
    ]
)
"""The columns of silver that are read; `legacy_offset_commit` lacks leader epoch and expiry."""
_MARKS = ("offset", "timestamp_ms", "attributes", "producer_id", "producer_epoch")


def of_files(
    home: str | Path, files: Iterable[DataFile], bucket: Bucket = WHOLE_LOG, *, lag_only: bool = False
) -> tuple[Iterator[pa.RecordBatch], Iterator[pa.RecordBatch]]:
    """Return the two arguments of `effects`: the commits of one log partition, and its transactional rows.

    Of `files` those of `offset_commit`, `legacy_offset_commit` and `coordinator_record` are read. Only the
    commits of one bucket are returned. With `lag_only` columns that lag does not depend on are null."""
    by_table: dict[str, list[DataFile]] = {}
    for file in files:
        name = f"{file.table}/{file.family}" if file.table == "coordinator_record" else file.table
        by_table.setdefault(name, []).append(file)
    omitted = _NOT_FOR_LAG if lag_only else ()
    commits = [
        _aligned(_in_bucket(read.of_files(home, by_table[name], wanted, dictionaries=_TEXTS), bucket))
        for name, names in (("offset_commit", _COLUMNS.names), ("legacy_offset_commit", _LEGACY))
        if name in by_table
        for wanted in [[name for name in names if name not in omitted]]
    ]
    marked = pc.bit_wise_and(pc.field("attributes"), pa.scalar(TRANSACTIONAL, pa.int16())) != 0
    marks = [
        _with_key(read.of_files(home, some, _MARKS if "commits" in name else [*_MARKS, "key"], marked))
        for name, some in sorted(by_table.items())
        if name.startswith("coordinator_record/")
    ]
    return read.merged(commits), read.merged(marks)


def _in_bucket(batches: Iterable[pa.RecordBatch], bucket: Bucket) -> Iterator[pa.RecordBatch]:
    """Yield the commits of a bucket. Their texts are dictionaries, so whole columns cost little."""
    for batch in batches:
        if bucket.of == 1:
            yield batch
            continue
        group, topic, partition = (batch.column(name) for name in ("group", "topic", "partition"))
        mine = commit_buckets(group, topic, partition, bucket.of) == bucket.ordinal
        yield batch.filter(pa.array(mine))


_TEXTS = ("cluster", "group", "topic")
_NOT_FOR_LAG = ("leader_epoch", "metadata", "expire_timestamp")
_LEGACY = [name for name in _COLUMNS.names if name not in ("leader_epoch", "expire_timestamp")]


def _aligned(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of `offset_commit` or `legacy_offset_commit` to `_COLUMNS`; missing columns are null."""
    for batch in batches:
        names = set(batch.schema.names)
        columns = [
            batch[f.name].cast(f.type) if f.name in names else pa.nulls(batch.num_rows, f.type)
            for f in _COLUMNS
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)


def _with_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add a null column `key` to batches of commits, of which no keys are read: they contain no markers."""
    for batch in batches:
        key = batch["key"] if "key" in batch.schema.names else pa.nulls(batch.num_rows, pa.binary())
        yield pa.RecordBatch.from_arrays([*(batch[name] for name in _MARKS), key], [*_MARKS, "key"])


def effects(
    commits: Iterable[pa.RecordBatch],
    transactional: Iterable[pa.RecordBatch] = (),
    watch: Callable[[Ended], None] | None = None,
) -> Iterator[Effects]:
    """Yield the commits and tombstones of a log partition, in the order in which they take effect.

    `commits` are batches of silver's `offset_commit` (or `legacy_offset_commit`); `transactional` are batches
    of bronze with at least the rows of transactions and their markers. Both are in log order. A commit whose
    transaction is open at the end has no effect. `watch` receives all transactional commits."""
    state = _State(watch)
    marks = _MarkReader(transactional)
    for batch in _aligned(commits):
        if batch.num_rows:
            yield from state.take(
                pa.Table.from_batches([batch]), marks.upto(int(batch["offset"][-1].as_py()))
            )
    yield from state.take(None, marks.upto(None))
    state.finish()


_NO_MARKS = _Marks(_NONE, _NONE, _NONE, _NONE, _NONE)


class _MarkReader:
    """A reader that returns transactional rows up to a given offset; rows beyond it wait for a later call."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: list[_Marks] = []
        self._last = -1

    def __repr__(self) -> str:
        return f"<transactional rows up to {self._last}>"

    def upto(self, offset: int | None) -> _Marks:
        while offset is None or self._last < offset:
            batch = next(self._batches, None)
            if batch is None:
                break
            if batch.num_rows:
                self._last = int(batch["offset"][-1].as_py())
                self._held.append(_marks(batch))
        columns = zip(*(self._held or [_NO_MARKS]), strict=True)
        held = _Marks(*(np.concatenate(column) for column in columns))
        cut = len(held.offset) if offset is None else int(np.searchsorted(held.offset, offset, "right"))
        self._held = [_Marks(*(column[cut:] for column in held))]
        return _Marks(*(column[:cut] for column in held))


def _marks(batch: pa.RecordBatch) -> _Marks:
    attributes = ints(batch["attributes"])
    wanted = np.flatnonzero(attributes & TRANSACTIONAL)
    if not len(wanted):
        return _NO_MARKS
    rows = batch.take(pa.array(wanted))
    commits = pc.fill_null(pc.equal(rows["key"], pa.scalar(COMMIT_MARKER, rows["key"].type)), False)
    marker = np.where(commits.to_numpy(zero_copy_only=False), _COMMIT, _ABORT)
    kind = np.where(attributes[wanted] & CONTROL, marker, -1).astype(np.int64)
    names = ("offset", "producer_id", "producer_epoch", "timestamp_ms")
    offset, producer, epoch, ms = (ints(rows[name]) for name in names)
    return _Marks(offset, producer, epoch, ms, kind)


@dataclass(slots=True, eq=False)
class _Waiting:
    """Commits of open transactions."""

    rows: pa.Table
    producer: Ints
    epoch: Ints
    key: Ints

    def only(self, which: Bools) -> _Waiting:
        rows = self.rows.filter(pa.array(which))
        return _Waiting(rows, self.producer[which], self.epoch[which], self.key[which])


class _EndedCommits(NamedTuple):
    """Commits whose transactions have ended: `kind`, `offset` and `ms` are their markers'."""

    held: _Waiting
    kind: Ints
    offset: Ints
    ms: Ints


class _Part(NamedTuple):
    """Commits and tombstones to which one call of `_State.take` gives effect, as columns.

    `position` and `ms` are the offset and time at which each takes effect: its own, or those of the marker.
    `late` means that they are commits of transactions, which rows with larger offsets may precede."""

    rows: pa.Table
    key: Ints
    position: Ints
    ms: Ints
    late: bool


@dataclass(eq=False)
class _State:
    watch: Callable[[Ended], None] | None = None
    keys: Keys = field(default_factory=Keys)
    cluster: str = ""
    last: Ints = field(default_factory=lambda: _NONE)
    """For each key the largest offset that took effect."""
    waiting: _Waiting | None = None

    def take(self, rows: pa.Table | None, marks: _Marks) -> Iterator[Effects]:
        """Yield what takes effect after the last row of the previous call, up to the last of `rows`.

        `marks` are the transactional rows of that range. At the end of the log `rows` is None."""
        parts: list[_Part] = []
        if rows is not None:
            self.cluster = rows["cluster"][0].as_py()
            keys = self.keys.of(rows)
            commits = marks.kind == -1
            offsets = ints(rows["offset"])
            # Kafka writes no tombstones in transactions, and would not defer them.
            found = np.isin(offsets, marks.offset[commits]) & ~bools(rows["tombstone"])
            if found.any():
                at = np.searchsorted(marks.offset, offsets[found])
                some = rows.filter(pa.array(found))
                self._wait(_Waiting(some, marks.producer[at], marks.epoch[at], keys[found]))
                rows, keys, offsets = rows.filter(pa.array(~found)), keys[~found], offsets[~found]
            parts.append(_Part(rows, keys, offsets, effect_ms(rows), late=False))
        over = self._ended(marks)
        if over is not None:
            done = over.kind == _COMMIT
            held = over.held.only(done)
            parts.append(_Part(held.rows, held.key, over.offset[done], over.ms[done], late=True))
        made = self._effects(parts) if any(len(part.key) for part in parts) else None
        if over is not None and self.watch is not None:
            self.watch(_ended_commits(over, _NONE if made is None else made.log_offset))
        if made is not None:
            yield made

    def finish(self) -> None:
        """Report the commits of transactions that are still open as pending."""
        held = self.waiting
        if held is not None and len(held.key) and self.watch is not None:
            no_marker = np.full(len(held.key), -1, np.int64)
            self.watch(
                Ended(held.rows, held.producer, held.epoch, no_marker, no_marker, no_marker, no_marker > 0)
            )

    def _wait(self, more: _Waiting) -> None:
        held = self.waiting
        if held is None:
            self.waiting = more
            return
        rows = pa.concat_tables([held.rows, more.rows])
        names = ("producer", "epoch", "key")
        self.waiting = _Waiting(
            rows, *(np.concatenate([getattr(held, name), getattr(more, name)]) for name in names)
        )

    def _ended(self, marks: _Marks) -> _EndedCommits | None:
        """Return the waiting commits whose transactions one of these markers ends, in their order; None if
        there are none."""
        held, ends = self.waiting, marks.kind >= 0
        if held is None or not len(held.key) or not ends.any():
            return None
        producers, where = marks.producer[ends], marks.offset[ends]
        order = np.lexsort((where, producers))
        at = first_behind(producers[order], where[order], held.producer, ints(held.rows["offset"]))
        ended = at >= 0
        if not ended.any():
            return None
        marker = np.flatnonzero(ends)[order][at][ended]
        self.waiting = held.only(~ended)
        return _EndedCommits(held.only(ended), marks.kind[marker], marks.offset[marker], marks.ms[marker])

    def _effects(self, parts: Sequence[_Part]) -> Effects:
        rows = pa.concat_tables([part.rows for part in parts])
        key, position, ms = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("key", "position", "ms")
        )
        log_offset = ints(rows["offset"])
        self.last = grown(self.last, len(self.keys), -1)
        if any(part.late for part in parts):
            order = np.lexsort((log_offset, position))
            order = order[self._winning(key[order], log_offset[order])]
            rows, key, ms, log_offset = rows.take(pa.array(order)), key[order], ms[order], log_offset[order]
        np.maximum.at(self.last, key, log_offset)
        tombstone = bools(rows["tombstone"])
        offset = ints(rows["committed_offset"], null=-1)
        return Effects(self.cluster, self.keys, key, offset, ms, tombstone, log_offset, rows)

    def _winning(self, key: Ints, log_offset: Ints) -> Bools:
        """Return a mask of the effects that win: those with a larger offset than all before on their key."""
        by_key = order_of(key, len(self.keys))
        keys, offsets = key[by_key], log_offset[by_key]
        before = running_max(keys, offsets, self.last[keys])
        wins = np.empty(len(key), np.bool_)
        wins[by_key] = offsets > before
        return wins


def _ended_commits(over: _EndedCommits, took_effect: Ints) -> Ended:
    offsets = ints(over.held.rows["offset"])
    order = np.lexsort((offsets, over.offset))
    counted = (np.isin(offsets, took_effect) & _last_of_its_end(over, offsets))[order]
    producer, epoch, kind, offset, ms = (
        column[order] for column in (over.held.producer, over.held.epoch, over.kind, over.offset, over.ms)
    )
    return Ended(over.held.rows.take(pa.array(order)), producer, epoch, kind, offset, ms, counted)


def _last_of_its_end(over: _EndedCommits, offsets: Ints) -> Bools:
    """Return a mask of the last commit of each key in each transaction."""
    by_key = np.lexsort((offsets, over.offset, over.held.key))
    key, offset = over.held.key[by_key], over.offset[by_key]
    last = np.empty(len(offsets), np.bool_)
    last[by_key] = np.r_[(key[1:] != key[:-1]) | (offset[1:] != offset[:-1]), True]
    return last


_Committed = tuple[int, int, str, int, int, int]
"""The columns of `COMMITTED_SCHEMA` after the key."""


def committed(commits: Iterable[pa.RecordBatch], transactional: Iterable[pa.RecordBatch] = ()) -> pa.Table:
    """Return the final committed offsets of each group, sorted by group, topic and partition.

    The arguments are those of `effects`."""
    found: dict[int, _Committed | None] = {}
    keys = Keys()
    for some in effects(commits, transactional):
        keys = some.keys
        for at in last_of_each(some.key).tolist():
            found[int(some.key[at])] = None if some.tombstone[at] else _values(some, at)
    names = keys.all
    rows = sorted((*names[key], *values) for key, values in found.items() if values is not None)
    columns = list(zip(*rows, strict=True)) or [()] * len(COMMITTED_SCHEMA)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, COMMITTED_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COMMITTED_SCHEMA)


def _values(some: Effects, at: int) -> _Committed:
    names = ("leader_epoch", "metadata", "commit_timestamp", "expire_timestamp")
    epoch, metadata, commit_ms, expire_ms = (some.rows[name][at].as_py() for name in names)
    return (
        int(some.offset[at]),
        -1 if epoch is None else epoch,
        metadata or "",
        int(some.ms[at]) if commit_ms is None else commit_ms,
        -1 if expire_ms is None else expire_ms,
        int(some.log_offset[at]),
    )


def effect_ms(rows: pa.Table | pa.RecordBatch) -> Ints:
    """Return when the rows were written; for a batch without timestamps, the commit's own timestamp."""
    ms = ints(rows["timestamp_ms"])
    if (ms < 0).any():
        ms = np.where(ms < 0, ints(rows["commit_timestamp"], null=-1), ms)
    return ms
