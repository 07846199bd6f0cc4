"""Tasks of a build: the gold tables of one log partition, from files to files.

Records are read in log order, batch by batch, and passed to the reducers; rows are written as they come.
Memory holds some ten thousand records, a row group of each table, and the reducers' state of existing groups.

A reducer must know where the log has holes but receives only the batches of groups; batches of commits lie
between them. So each stretch between two batches without missing offsets is reported to it as one batch
without records. For compacted spans that is looked up in the offsets themselves. If a task computes one of
several buckets, the holes were found beforehand (`observe`), and its batches are all that lie between.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from konvene.pipeline.arrays import Ints
from konvene.pipeline.gold.buckets import Bucket, group_buckets
from konvene.pipeline.gold.commits import Ended
from konvene.pipeline.gold.commits import of_files as commits_of
from konvene.pipeline.gold.delivery import delivery_rows
from konvene.pipeline.gold.health import health_rows
from konvene.pipeline.gold.lag import StoredEnds, compacted_ranges, lag_rows
from konvene.pipeline.gold.resume import Reached, StoredState, before_last, load, pickled, store
from konvene.pipeline.gold.share_lag import share_lag
from konvene.pipeline.gold.task import Task
from konvene.pipeline.gold.transactional import NAMED, names_of, rows_of
from konvene.pipeline.gold.transitions import Observer, Replay, Transition
from konvene.pipeline.ingest.offset_spans import WHOLE, Span
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.reduce.diagnosis import AuditRow
from konvene.pipeline.reduce.ownership import Row
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.parquet import VERSION, Sink
from konvene.pipeline.warehouse.read import of_files
from konvene.pipeline.warehouse.warehouse import DataFile, folder_of

__all__ = ["GOLD_OF", "RULES", "Holes", "Made", "make", "observe"]

RULES = 7
"""Version of the gold rules: incremented when the same records yield other rows. Existing gold is then
rebuilt.
"""

_REDUCED = ("rebalance", "rebalance_member", "ownership", "unavailability")
GOLD_OF = {
    "groups": (*_REDUCED, "group_health"),
    "lag": ("lag", "transactional_commit"),
    "delivery": ("share_delivery", "share_progress", "lag"),
}
"""The tables that a task of each kind writes."""
_OF_HEALTH = ("rebalance", "unavailability", "rebalance_member")
Rows = Iterable[pa.RecordBatch] | None
"""The records or commits of a task, if it does not read them itself."""
HEALTH_ROWS_AT_A_TIME = 25_000
"""The health of groups is computed from about this many rows at a time."""


class Made(NamedTuple):
    """The files that a task wrote."""

    kind: str
    of: Partition
    bucket: Bucket
    files: list[DataFile]


def make(task: Task, rows: Iterable[pa.RecordBatch] | None = None) -> Made:
    """Run a task of a build and return the files that it wrote.

    `rows` are the records or commits of its bucket, in log order; without them the task reads them."""
    try:
        with _rare_collections():
            return Made(task.kind, task.of, task.bucket, _MAKERS[task.kind](task, rows))
    finally:
        pa.default_memory_pool().release_unused()


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often within the block: rows and records have no cycles, and looking for some
    after every few hundred of them takes a fifth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def observe(task: Task) -> tuple[Partition, tuple[Transition, ...]]:
    """Return where the history of a task's log becomes incomplete, and complete again."""
    found = [batch.column(0).to_pylist() for batch in task.read("quarantine", ["offset"])]
    observer = Observer(frozenset(itertools.chain.from_iterable(found)))
    for _ in _feed(task, observer, task.inputs["groups"], Holes(task), Reached()):
        pass
    return task.of, tuple(observer.found)


# groups -------------------------------------------------------------------------------------------


def _groups(task: Task, rows: Rows) -> list[DataFile]:
    out, names = _Out(task, _REDUCED), dict(_names(task))
    known = load(task) if task.goes_on else None
    try:
        reducer = None
        if known is not None:
            since = [file for file in task.inputs["audit_event"] if file.path not in known.audit]
            reducer = known.reducer(names, _audit(task, since))
        if reducer is None:
            known = None
            audit = _audit(task, task.inputs["audit_event"])
            some = task.bucket.of > 1
            reducer = PartitionReducer(task.of.cluster, task.of.partition, audit, names, some_groups=some)
        to_store = _reduced(task, reducer, known, out, rows)
        files = out.close()
    finally:
        out.abandon()
    until_ms = _until_ms(task, known)
    files += _health(task, files, until_ms)
    if to_store is not None:
        times = frozenset(file.path for file in task.inputs["times"])
        store(task, replace(to_store, gold=files, times=times, until_ms=until_ms))
    return files


def _reduced(
    task: Task, reducer: PartitionReducer, known: StoredState | None, out: _Out, rows: Rows
) -> StoredState | None:
    """Reduce the task's records and write the rows of `_REDUCED`; return the state to store for the next
    task, or None.

    `known` is the stored state that `reducer` was restored from, if any."""
    groups, to_store = task.inputs["groups"], known
    done, reached = 0, Reached()
    if known is not None:
        done, reached = len(known.groups), replace(known.reached)
        out.copy(known.gold, known.rows)
    early = max(done, before_last(groups)) if task.goes_on else len(groups)
    feed = _feeder(task, reducer, reached, rows)
    for _ in feed(groups[done:early]):
        out.rows(reducer.drain())
    if task.goes_on and early > done and reached.ends <= groups[early - 1].last_offset:
        to_store = pickled(task, reducer, reached, out.counts)
    for _ in feed(groups[early:]):
        out.rows(reducer.drain())
    if task.bucket.of > 1:
        Replay(task.transitions, reducer, reached.transitions).finish(reached.ends)
    reducer.finish()
    out.rows(reducer.drain())
    return to_store


def _feeder(
    task: Task, reducer: PartitionReducer, reached: Reached, rows: Rows
) -> Callable[[Sequence[DataFile]], Iterator[None]]:
    """Return the function that feeds the records of files to the reducer; `rows` are those of all files."""
    if task.bucket.of > 1:

        def feed(files: Sequence[DataFile]) -> Iterator[None]:
            found = rows if rows is not None and files else _of_bucket(task, files)
            return _feed_bucket(task, reducer, found, reached)

        return feed
    holes = Holes(task)
    return lambda files: _feed(task, reducer, files, holes, reached)


RECORDS_AT_A_TIME = 4096
"""After so many records their rows are written: a record of a large group yields several."""
_COLUMNS = ("offset", "timestamp_ms", "batch_base_offset", "batch_last_offset", "key", "value", "key_type")


def _of_bucket(task: Task, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's bucket in these files."""
    for batch in of_files(task.warehouse, files, (*_COLUMNS, "group_id")):
        mine = group_buckets(batch.column("group_id"), task.bucket.of) == task.bucket.ordinal
        yield batch.filter(pa.array(mine))


def _feed_bucket(
    task: Task, reducer: PartitionReducer, batches: Iterable[pa.RecordBatch], reached: Reached
) -> Iterator[None]:
    """Feed records of the task's bucket to the reducer; otherwise like `_feed`."""
    replay = Replay(task.transitions, reducer, reached.transitions)
    for rows in _pieces(batches):
        for offset, timestamp_ms, base, last, key, value, kind in zip(
            *(rows.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            if base != reached.begins:
                replay.before_batch(base, reached.ends)
                reducer.batch(base, last, last - base + 1)
                reached.begins, reached.ends = base, last
            if timestamp_ms > reached.ms:
                reached.ms = timestamp_ms
            if kind is not None:
                replay.before_record(offset)
                reducer.take(offset, timestamp_ms, key, value)
        reached.transitions = replay.applied
        yield


def _feed(
    task: Task,
    reducer: PartitionReducer | Observer,
    files: Sequence[DataFile],
    holes: Holes,
    reached: Reached,
) -> Iterator[None]:
    """Feed the records of these files to the reducer; yields now and then, so that its rows can be drained.

    `reached` is updated to the last batch of the log that was fed."""
    for batch in _pieces(of_files(task.warehouse, files, _COLUMNS)):
        rows = zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
        for offset, timestamp_ms, base, last, key, value, kind in rows:
            if base != reached.begins:
                ends = reached.ends
                if base > ends + 1 and holes.count(ends + 1, base - 1) == base - ends - 1:
                    reducer.batch(ends + 1, base - 1, base - ends - 1)
                reducer.batch(base, last, holes.count(base, last))
                reached.begins, reached.ends = base, last
            if timestamp_ms > reached.ms:
                reached.ms = timestamp_ms
            if kind is not None:
                reducer.take(offset, timestamp_ms, key, value)
        yield


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for at in range(0, batch.num_rows, RECORDS_AT_A_TIME):
            yield batch.slice(at, RECORDS_AT_A_TIME)


class Holes:
    """Counter of the offsets in a range that have a record. Ranges must be queried in ascending order."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._at = 0
        self._offsets: Ints | None = None

    def __repr__(self) -> str:
        return f"<holes of {self._task.of}>"

    def count(self, first: int, last: int) -> int:
        found = 0
        while first <= last and self._at < len(self._task.spans):
            span = self._task.spans[self._at]
            if span.last < first:
                self._at, self._offsets = self._at + 1, None
                continue
            begin, end = max(first, span.first), min(last, span.last)
            if begin > last:
                break
            found += end - begin + 1 if span.kind == WHOLE else self._in(span, begin, end)
            first = end + 1
        return found

    def _in(self, span: Span, first: int, last: int) -> int:
        if self._offsets is None:
            wanted = (ds.field("offset") >= span.first) & (ds.field("offset") <= span.last)
            parts = [np.empty(0, np.int64)]
            for word in ("groups", "commits"):
                files = [
                    f for f in self._task.inputs[word]
                    if f.first_offset <= span.last and span.first <= f.last_offset
                ]  # fmt: skip
                for batch in of_files(self._task.warehouse, files, ["offset"], wanted):
                    parts.append(batch.column(0).to_numpy(zero_copy_only=False))
            self._offsets = np.sort(np.concatenate(parts))
        low, high = np.searchsorted(self._offsets, [first, last + 1])
        return int(high - low)


def _audit(task: Task, files: Sequence[DataFile]) -> Iterator[AuditRow]:
    """Yield the audit rows about this log, in the order written.

    Those about generations without records are included, since their log partition is unknown."""
    wanted = (ds.field("partition") == task.of.partition) | (ds.field("partition") == -1)
    for batch in of_files(task.warehouse, files, None, wanted):
        mine = group_buckets(batch.column("group_id"), task.bucket.of) == task.bucket.ordinal
        yield from batch.filter(pa.array(mine)).to_pylist()


def _names(task: Task) -> Iterator[tuple[str, str]]:
    for batch in task.read("topic_name", ["topic_id", "topic"]):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _health(task: Task, files: list[DataFile], until_ms: int | None) -> list[DataFile]:
    """Write `group_health` from the gold files that the task has just written, some groups at a time."""

    def rows() -> Iterator[pa.RecordBatch]:
        for first, last in _some_groups(task, files):
            wanted = (ds.field("group_id") >= first) & (ds.field("group_id") <= last)
            tables = (
                pa.Table.from_batches(_of(task, files, name, None, wanted), TABLES[name].schema)
                for name in _OF_HEALTH
            )
            yield from health_rows(*tables, until_ms=until_ms)

    return _table(task, "group_health", rows())


def _some_groups(task: Task, files: list[DataFile]) -> Iterator[tuple[str, str]]:
    """Yield the first and last group id of ranges with about `HEALTH_ROWS_AT_A_TIME` rows, at least one group
    each."""
    rows: Counter[str] = Counter()
    for name in _OF_HEALTH:
        for batch in _of(task, files, name, ["group_id"]):
            counted = batch.column(0).value_counts()
            rows.update(dict(zip(*(part.to_pylist() for part in counted.flatten()), strict=True)))
    groups, first, count = sorted(rows), 0, 0
    for at, group in enumerate(groups):
        count += rows[group]
        if count >= HEALTH_ROWS_AT_A_TIME or at == len(groups) - 1:
            yield groups[first], group
            first, count = at + 1, 0


def _of(
    task: Task,
    files: list[DataFile],
    name: str,
    columns: Sequence[str] | None,
    wanted: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    for file in files:
        if file.table == name:
            yield from of_files(task.warehouse, [file], columns, wanted)


def _until_ms(task: Task, known: StoredState | None) -> int | None:
    """Return the largest timestamp in the log, from Parquet column statistics; None if it has none.

    Files that the stored state `known` covers are not read again."""
    times = [] if known is None or known.until_ms is None else [known.until_ms]
    for file in task.inputs["times"]:
        if known is not None and file.path in known.times:
            continue
        metadata = pq.read_metadata(os.path.join(task.warehouse, file.path))
        column = metadata.schema.to_arrow_schema().get_field_index("timestamp_ms")
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(column).statistics
            if statistics is not None and statistics.has_min_max:
                times.append(int(statistics.max))
    return max(times, default=None)


# lag, delivery ------------------------------------------------------------------------------------


def _lag(task: Task, rows: Rows) -> list[DataFile]:
    """Write `lag` and, in the same pass, `transactional_commit`."""
    names = names_of(task.read("transactions", NAMED))
    files = [*task.inputs["commits"], *task.inputs["transactional"]]
    commits, marks = commits_of(task.warehouse, files, task.bucket, lag_only=True)
    commits = commits if rows is None else iter(rows)
    ranges = [(span.first, span.last) for span in task.spans if span.kind != WHOLE]
    compacted = compacted_ranges(task.warehouse, task.inputs["commits"], ranges)
    ends = StoredEnds(task.warehouse, task.inputs["log_end"])
    out = _Out(task, GOLD_OF["lag"])

    def ended(some: Ended) -> None:
        out.batch("transactional_commit", rows_of(some, task.of.partition, names))

    try:
        for batch in lag_rows(commits, ends, marks, compacted, ended):
            out.batch("lag", batch)
        return out.close()
    finally:
        out.abandon()


def _delivery(task: Task, rows: Rows) -> list[DataFile]:
    out = _Out(task, GOLD_OF["delivery"])
    ends = StoredEnds(task.warehouse, task.inputs["log_end"])

    def minutes(batch: pa.RecordBatch) -> None:
        out.batch("share_progress", batch)
        out.batch("lag", share_lag(batch, ends))

    snapshots, updates = task.read("share_snapshot"), task.read("share_update")
    try:
        for batch in delivery_rows(snapshots, updates, dict(_names(task)), minutes):
            out.batch("share_delivery", batch)
        return out.close()
    finally:
        out.abandon()


_MAKERS: dict[str, Callable[[Task, Rows], list[DataFile]]] = {
    "groups": _groups,
    "lag": _lag,
    "delivery": _delivery,
}


# files --------------------------------------------------------------------------------------------


def _table(task: Task, name: str, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
    out = _Out(task, (name,))
    try:
        for batch in batches:
            out.batch(name, batch)
        return out.close()
    finally:
        out.abandon()


class _Out:
    """The output files of a task, one per table."""

    def __init__(self, task: Task, tables: Sequence[str]) -> None:
        self._task = task
        self._sinks = {
            name: Sink(os.path.join(task.warehouse, folder_of(name, task.of)), TABLES[name].schema)
            for name in tables
        }
        self.counts = dict.fromkeys(tables, 0)
        """Number of rows by table."""

    def __repr__(self) -> str:
        return f"<gold of {self._task.of}: {', '.join(self._sinks)}>"

    def rows(self, drained: dict[str, list[Row]]) -> None:
        """Write rows of several tables, as tuples in column order."""
        for name, rows in sorted(drained.items()):
            if rows:
                self.batch(name, TABLES[name].batch(rows))

    def batch(self, name: str, rows: pa.RecordBatch) -> None:
        self._sinks[name].write(rows)
        self.counts[name] += rows.num_rows

    def copy(self, files: Sequence[DataFile], counts: Mapping[str, int]) -> None:
        """Write the first rows of the files that the previous task wrote, `counts[table]` of each table."""
        for file in files:
            left = counts.get(file.table, 0)
            for batch in of_files(self._task.warehouse, [file] if left else []):
                if left:
                    self.batch(file.table, batch.slice(0, left))
                    left -= min(left, batch.num_rows)

    def close(self) -> list[DataFile]:
        of, last, bucket = self._task.of, self._task.spans[-1].last, self._task.bucket.name
        stem = f"{last}-v{VERSION}" + (f"-{bucket}" if bucket else "")
        files = []
        for name, sink in sorted(self._sinks.items()):
            written = sink.close(lambda checksum: f"{stem}-{checksum}.parquet")
            if written is not None:
                files.append(DataFile.made(name, folder_of(name, of), of, 0, last, written, bucket))
        return files

    def abandon(self) -> None:
        for sink in self._sinks.values():
            sink.abandon()
