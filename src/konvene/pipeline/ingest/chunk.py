"""Tasks of an ingest: one part of one log, from its bytes to files of bronze and silver.

A task names the bytes to read and the wanted offsets; it returns rows about files, the spans of its offsets,
and topic names. Batches are streamed: memory holds a window of the part (`windows.WINDOW_BYTES`), a block of
records, the offsets, and a row group of each table.

If the cleaner or retention replaced or deleted the segment, nothing is read and the task reports it, since
the batch boundaries of the new file are unknown.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from konvene.codec.batches import read_header
from konvene.codec.errors import CodecError
from konvene.internal_topics import AUDIT_TOPIC, CLUSTER_METADATA_TOPIC, COORDINATOR_TOPICS, OFFSETS_TOPIC
from konvene.pipeline.arrays import Ints
from konvene.pipeline.codec.bronze import Decoded, LogRecords, located
from konvene.pipeline.codec.ends import log_ends
from konvene.pipeline.codec.typed import TYPED
from konvene.pipeline.gold.audits import audit_rows
from konvene.pipeline.ingest.offset_spans import WHOLE, Range, Span, spans_of
from konvene.pipeline.ingest.splits import Replaced, Split, read_bytes
from konvene.pipeline.ingest.windows import decoded
from konvene.pipeline.sources.client_config import NO_CONFIG, ClientConfig
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.sources.topics import Named, names_in_commits, names_in_metadata, names_in_share_groups
from konvene.pipeline.tables import TABLES
from konvene.pipeline.warehouse.parquet import VERSION, Sink
from konvene.pipeline.warehouse.warehouse import DataFile, folder_of

__all__ = ["READ_WHOLE", "Chunk", "Done", "do"]

_DECODED = (*COORDINATOR_TOPICS, AUDIT_TOPIC)
READ_WHOLE = (*_DECODED, CLUSTER_METADATA_TOPIC)
"""Topics whose records are read; of others only the headers of batches are."""
_COMMITS = (0, 1)
_NAMES = {
    "offset_commit": names_in_commits,
    "share_group_state_partition_metadata": names_in_share_groups,
}
"""Silver tables whose rows contain topics by id and by name."""


class Chunk(NamedTuple):
    """A task: a part of a log, and the offsets in it to read."""

    warehouse: str
    of: Partition
    split: Split
    within: Range
    tables: frozenset[str] | None = None
    """Write only these tables; None for all."""
    known: tuple[str, ...] | None = None
    """Paths of bronze files that may have some of the offsets: these are not written again. None if all
    offsets are known to be new."""
    pieces: tuple[Range, ...] = ()
    """Existing spans within the range, which are kept apart in the result; empty for the range as a whole."""
    servers: str = ""
    """Bootstrap servers to fetch the range from; the split is then ignored."""
    client: ClientConfig = NO_CONFIG

    @property
    def size(self) -> int:
        return self.split.size


class Done(NamedTuple):
    """The result of a task; `spans` is None if the file was replaced."""

    of: Partition
    within: Range
    spans: list[Span] | None
    files: list[DataFile]
    names: list[Named]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def do(task: Chunk) -> Done:
    """Run a task: read its part of a log and write the tables that follow from it."""
    if task.servers:
        return _read_by(task, _fetched(task))
    try:
        if task.of.topic in _DECODED:
            return _read_by(task, decoded(task.split))
        if task.of.topic == CLUSTER_METADATA_TOPIC:
            return _named(task, read_bytes(task.split))
        return _ends(task, _mapped(task.split))
    except (FileNotFoundError, Replaced):
        return Done(task.of, task.within, None, [], [])
    finally:
        pa.default_memory_pool().release_unused()


def _read_by(task: Chunk, found: Iterator[Decoded]) -> Done:
    if task.of.topic == AUDIT_TOPIC:
        return _audit(task, found)
    return _Coordinator(task, found).done()


def _fetched(task: Chunk) -> Iterator[Decoded]:
    from konvene.pipeline.sources.decode import fetched

    return fetched(task.servers, task.of, *task.within, task.client)


class _Coordinator:
    """Writer of the bronze and silver files of one part of a coordinator's log."""

    def __init__(self, task: Chunk, found: Iterator[Decoded]) -> None:
        self.task = task
        self.sinks: dict[tuple[str, str], Sink] = {}
        self.offsets: list[Ints] = []
        self.names: set[Named] = set()
        self.known = _known_offsets(task)
        self.found = found
        self.where = (task.of.cluster, task.of.topic, task.of.partition)

    def __repr__(self) -> str:
        return f"<{self.task.of} {self.task.within}, {len(self.sinks)} files>"

    def done(self) -> Done:
        try:
            self._read()
            spans = self._spans()
            files = [
                file
                for (table, family) in sorted(self.sinks)
                if (file := self._close(table, family)) is not None
            ]
        finally:
            for sink in self.sinks.values():
                sink.abandon()
        return Done(self.task.of, self.task.within, spans, files, sorted(self.names))

    def _spans(self) -> list[Span]:
        met = np.concatenate([*self.offsets, np.empty(0, np.int64)])
        if self.known is not None:
            met = np.union1d(met, self.known)
        spans: list[Span] = []
        for piece in self.task.pieces or (self.task.within,):
            begin, end = np.searchsorted(met, [piece.first, piece.last + 1])
            spans += spans_of(met[begin:end], piece)
        return spans

    def _read(self) -> None:
        for block in self.found:
            if block.quarantine is not None and self.known is None:
                self._quarantine(located(block.quarantine, *self.where))
            records = self._wanted(block.rows(*self.where))
            if len(records):
                self.offsets.append(records.offsets)
                self._bronze(records)
                self._silver(records)

    def _wanted(self, records: LogRecords) -> LogRecords:
        records = records.within(*self.task.within)
        if self.known is not None:
            records = records.filter(~np.isin(records.offsets, self.known))
        return records

    def _bronze(self, records: LogRecords) -> None:
        if not self._is_requested("coordinator_record"):
            return
        schema = TABLES["coordinator_record"].schema
        if self.task.of.topic != OFFSETS_TOPIC:
            self._sink("coordinator_record", schema).write(records.batch())
            return
        types, typed = records.types()
        commits = typed & np.isin(types, _COMMITS)
        for family, mask in (("commits", commits), ("groups", ~commits)):
            rows = records.filter(mask)
            if len(rows):
                self._sink("coordinator_record", schema, family).write(rows.batch())

    def _silver(self, records: LogRecords) -> None:
        types, typed = records.types()
        for kind in np.unique(types[typed]).tolist():
            table = TYPED.get((self.task.of.topic, kind))
            if table is None or not self._is_requested(table.name):
                continue
            rows, bad = table.decode(records.filter(typed & (types == kind)))
            if rows.num_rows:
                self._sink(table.name, table.schema).write(rows)
                names = _NAMES.get(table.name)
                if names is not None:
                    self.names.update(names(rows, self.task.of.cluster))
            if bad is not None and bad.num_rows:
                self._quarantine(bad)

    def _quarantine(self, rows: pa.RecordBatch) -> None:
        if self._is_requested("quarantine"):
            self._sink("quarantine", TABLES["quarantine"].schema).write(rows)

    def _is_requested(self, table: str) -> bool:
        return self.task.tables is None or table in self.task.tables

    def _sink(self, table: str, schema: pa.Schema, family: str = "") -> Sink:
        sink = self.sinks.get((table, family))
        if sink is None:
            sink = self.sinks[table, family] = _sink(self.task, table, schema)
        return sink

    def _close(self, table: str, family: str) -> DataFile | None:
        return _closed(self.task, self.sinks[table, family], table, family)


def _audit(task: Chunk, found: Iterator[Decoded]) -> Done:
    """Write `audit_event` from a part of the audit topic's log."""
    tables = [TABLES[name] for name in ("audit_event", "quarantine")]
    sinks = [_sink(task, table.name, table.schema) for table in tables]
    requested = [task.tables is None or table.name in task.tables for table in tables]
    offsets = [np.empty(0, np.int64)]

    def write(*rows: pa.RecordBatch | None) -> None:
        for sink, is_requested, some in zip(sinks, requested, rows, strict=True):
            if is_requested and some is not None and some.num_rows:
                sink.write(some)

    try:
        for block in found:
            records = block.rows(task.of.cluster, task.of.topic, task.of.partition).within(*task.within)
            offsets.append(records.offsets)
            if block.quarantine is not None:
                write(None, located(block.quarantine, task.of.cluster, task.of.topic, task.of.partition))
            for events, bad in audit_rows(records):
                write(events, bad)
        files = [_closed(task, sink, table.name) for sink, table in zip(sinks, tables, strict=True)]
    finally:
        for sink in sinks:
            sink.abandon()
    spans = spans_of(np.concatenate(offsets), task.within)
    return Done(task.of, task.within, spans, [file for file in files if file is not None], [])


def _named(task: Chunk, buf: memoryview) -> Done:
    """Return the topic names in a part of the cluster metadata log."""
    names = names_in_metadata(buf, task.of.cluster)
    return Done(task.of, task.within, _whole_span(task.within), [], names)


def _ends(task: Chunk, buf: memoryview) -> Done:
    """Write `log_end` from a part of a user topic's log."""
    where = (task.of.cluster, task.of.topic, task.of.partition)
    table = TABLES["log_end"]
    sink = _sink(task, table.name, table.schema)
    try:
        if task.tables is None or table.name in task.tables:
            begin, end = _between(buf, task.split.size, task.within)
            for rows in log_ends(buf, position=begin, end=end):
                sink.write(located(rows, *where))
        file = _closed(task, sink, table.name)
    finally:
        sink.abandon()
    return Done(task.of, task.within, _whole_span(task.within), [file] if file is not None else [], [])


def _between(buf: memoryview, size: int, within: Range) -> tuple[int, int]:
    """Return the position of the first batch of a range, and that of the first batch after it."""
    at = begin = 0
    while at < size:
        try:
            header = read_header(buf, at)
        except CodecError:
            break
        if header.base_offset < within.first:
            begin = at + header.size
        elif header.base_offset > within.last:
            return begin, at
        at += header.size
    return begin, size


def _whole_span(within: Range) -> list[Span]:
    """Return one whole span for the range: records of this log are not counted, so no other copy is
    searched."""
    return [Span(within.first, within.last, WHOLE, within.last - within.first + 1)]


# bytes in, files out ------------------------------------------------------------------------------


def _mapped(split: Split) -> memoryview:
    """Map the file up to the end of the part into memory; only pages with batch headers are read.

    A user's log can be a thousand times as long as a coordinator's, so this accepts the risk that
    `read_bytes` avoids: truncating the file meanwhile (as a follower does after a leader change) crashes the
    process. Raises `Replaced` if the file was replaced."""
    with open(split.path, "rb") as file:
        stat = os.fstat(file.fileno())
        if stat.st_size < split.end or stat.st_ino != split.inode:
            raise Replaced(f"{split.path} was replaced since it was planned to be read")
        mapped = mmap.mmap(file.fileno(), split.end, prot=mmap.PROT_READ)
        return memoryview(mapped)[split.position :]


def _known_offsets(task: Chunk) -> Ints | None:
    """Return the offsets of the range that bronze already has; None if all of the range are new."""
    if task.known is None:
        return None
    return np.concatenate([*_offsets(task), np.empty(0, np.int64)])


def _offsets(task: Chunk) -> Iterator[Ints]:
    for path in task.known or ():
        file = pq.ParquetFile(os.path.join(task.warehouse, path))
        for batch in file.iter_batches(columns=["offset"]):
            found = batch.column(0).to_numpy(zero_copy_only=False)
            yield found[(found >= task.within.first) & (found <= task.within.last)]


def _sink(task: Chunk, table: str, schema: pa.Schema) -> Sink:
    return Sink(os.path.join(task.warehouse, folder_of(table, task.of)), schema)


def _closed(task: Chunk, sink: Sink, table: str, family: str = "") -> DataFile | None:
    first, last = task.within
    stem = f"{first}-{last}-v{VERSION}" + (f"-{family}" if family else "")
    written = sink.close(lambda checksum: f"{stem}-{checksum}.parquet")
    if written is None:
        return None
    return DataFile.made(table, folder_of(table, task.of), task.of, first, last, written, family)
