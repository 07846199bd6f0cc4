"""Decodes a piece of a coordinator's log into the table `coordinator_record`, column by column.

A column is made when it is read. Keys and values are copied once, from the log into their columns; typed
tables, which decode the fields of keys and values from the log itself, do not need that copy. Of the contents
only three fields are read here: the type in the key, the version in the value, and the first string of the
key, which is the group id of all records of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from konvene.codec.compression import DEFAULT_LIMIT
from konvene.pipeline.arrays import Bools, Ints
from konvene.pipeline.codec.batches import MAX_BYTES, MAX_RECORDS, Bad, Block, Bytes, Source, walk
from konvene.pipeline.codec.records import Records, parse
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.common import WHERE

__all__ = [
    "QUARANTINE",
    "RECORDS",
    "Decoded",
    "LogRecords",
    "blocks",
    "int16_at",
    "located",
    "quarantined",
    "spans",
    "texts",
]

_WHERE = {column.name for column in WHERE}


def _without_where(table: str) -> pa.Schema:
    return pa.schema([f for f in TABLES[table].schema if f.name not in _WHERE])


RECORDS = _without_where("coordinator_record")
QUARANTINE = _without_where("quarantine")
"""The tables' schemas without cluster, topic and partition, which a buffer does not contain."""

_BINARY = pa.binary()
_CONTROL = 0x20


@dataclass(slots=True)
class LogRecords:
    """Records of a log partition as rows of `coordinator_record`; each column is made when it is read."""

    found: Records
    cluster: str
    topic: str
    partition: int
    segment_base: int = -1
    origin: int = 0

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.topic}-{self.partition}>"

    @property
    def offsets(self) -> Ints:
        return self.found.offset

    def types(self) -> tuple[npt.NDArray[np.int16], Bools]:
        """Return the type in each key, and a mask of the records that have one."""
        return int16_at(self.found.block.data, self.found.key), _typed(self.found)

    def of_type(self, kind: int) -> LogRecords:
        types, typed = self.types()
        return self.filter(typed & (types == kind))

    def within(self, first: int, last: int) -> LogRecords:
        """Return the records with offsets from `first` to `last`."""
        offsets = self.offsets
        if not len(offsets) or (offsets[0] >= first and offsets[-1] <= last):
            return self
        return self.filter((offsets >= first) & (offsets <= last))

    def filter(self, kept: Bools) -> LogRecords:
        """Return the records that the mask selects."""
        return self if kept.all() else replace(self, found=self.found.only(np.flatnonzero(kept)))

    def slice(self, at: int, count: int) -> LogRecords:
        return replace(self, found=self.found.only(np.arange(at, min(at + count, len(self)))))

    def column(self, name: str) -> pa.Array:
        """Return a column of `coordinator_record`."""
        n = len(self)
        match name:
            case "cluster":
                return pa.repeat(self.cluster, n)
            case "topic":
                return pa.repeat(self.topic, n)
            case "partition":
                return pa.repeat(pa.scalar(self.partition, pa.int32()), n)
            case "segment_base_offset":
                return pa.array(np.full(n, self.segment_base, np.int64))
            case "file_position":
                positions = self.found.block.positions.take(self.found.batch) + self.origin
                return pa.array(positions if self.segment_base >= 0 else np.full(n, -1, np.int64))
        return _COLUMNS[name](self.found)

    def batch(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the rows with these columns, or with all."""
        schema = TABLES["coordinator_record"].schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([self.column(name) for name in schema.names], schema=schema)


@dataclass(slots=True)
class Decoded:
    """Decoded records of a piece of log, and the batches and records that could not be decoded."""

    found: Records
    segment_base: int
    origin: int
    quarantine: pa.RecordBatch | None
    next_position: int
    """Where to continue in the buffer: everything before it is in this block or an earlier one."""
    first_offset: int
    """Base offset of the first batch of these records; -1 if there is none."""
    last_offset: int
    """Last offset of their last batch, which may lie after the last remaining record; -1 if there is none."""

    @property
    def has_damage(self) -> bool:
        """True if something in the block of these records could not be decoded, even if a later piece of the
        block reports it."""
        return bool(self.found.block.bad)

    def rows(self, cluster: str, topic: str, partition: int) -> LogRecords:
        """Return the records as rows of this log partition."""
        return LogRecords(self.found, cluster, topic, partition, self.segment_base, self.origin)

    @property
    def records(self) -> pa.RecordBatch:
        """Rows of `coordinator_record` without cluster, topic and partition, made with each call."""
        rows = self.rows("", "", -1)
        return pa.RecordBatch.from_arrays([rows.column(name) for name in RECORDS.names], schema=RECORDS)


def blocks(
    buf: Source,
    *,
    segment_base: int = -1,
    position: int = 0,
    end: int | None = None,
    origin: int = 0,
    most_records: int = MAX_RECORDS,
    most_bytes: int = MAX_BYTES,
    limit: int = DEFAULT_LIMIT,
    last_offset: int = -1,
) -> Iterator[Decoded]:
    """Yield the records of the batches that begin in `buf[position:end]`, some ten thousand at a time.

    `origin` is the position of the buffer in the segment. Without a segment, `segment_base` is -1 and so are
    all positions in the tables. `last_offset` is that of the batches before the buffer. A batch cut off by
    the end of the buffer is not decoded: the last `next_position` is its start. No input raises an error."""
    for block in walk(
        buf, position, end, most_records=most_records, most_bytes=most_bytes, limit=limit,
        last_offset=last_offset,
    ):  # fmt: skip
        for found in parse(block, buf, most_records=most_records):
            quarantine = quarantined(found.block.bad, segment_base, origin) if found.last else None
            headers = found.block.headers
            many = len(headers) > 0
            yield Decoded(
                found,
                segment_base,
                origin,
                quarantine,
                block.next_position if found.last else int(found.block.positions[0]),
                int(headers["base_offset"][0]) if many else -1,
                int(headers["base_offset"][-1]) + int(headers["last_offset_delta"][-1]) if many else -1,
            )


def located(batch: pa.RecordBatch, cluster: str, topic: str, partition: int) -> pa.RecordBatch:
    """Return the batch with the columns of the log in front: cluster, topic, partition."""
    n = len(batch)
    where = [pa.repeat(cluster, n), pa.repeat(topic, n), pa.repeat(pa.scalar(partition, pa.int32()), n)]
    schema = pa.schema([pa.field(c.name, c.type, nullable=False) for c in WHERE] + list(batch.schema))
    return pa.RecordBatch.from_arrays(where + batch.columns, schema=schema)


def quarantined(bad: list[Bad], segment_base: int, origin: int = 0) -> pa.RecordBatch | None:
    """Return rows of `quarantine` for the bad batches and records; None if there are none."""
    if not bad:
        return None
    at = [b.position + origin if segment_base >= 0 else -1 for b in bad]
    columns = [
        pa.repeat(segment_base, len(bad)).cast(pa.int64()),
        pa.array(at, pa.int64()),
        pa.array([b.offset for b in bad], pa.int64()),
        pa.array([b.length for b in bad], pa.int64()),
        pa.array([b.reason for b in bad], pa.string()),
        pa.array([b.head for b in bad], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=QUARANTINE)


# columns ------------------------------------------------------------------------------------------


def _of_batch(values: Callable[[Block], npt.NDArray[np.integer]]) -> Callable[[Records], pa.Array]:
    """Return the function that makes a column of a value which all records of a batch share."""
    return lambda found: pa.array(values(found.block).take(found.batch))


def _header(name: str, kind: type[np.integer]) -> Callable[[Records], pa.Array]:
    return _of_batch(lambda block: block.headers[name].astype(kind))


def _typed(found: Records) -> Bools:
    """Return a mask of the records whose key has a type: those of data batches with a key long enough."""
    is_data = (found.block.headers["attributes"] & _CONTROL == 0).take(found.batch)
    typed: Bools = is_data & (found.key_length >= 2)
    return typed


def _key_types(found: Records) -> pa.Array:
    return _nullable(int16_at(found.block.data, found.key), _typed(found))


def _value_versions(found: Records) -> pa.Array:
    is_data = (found.block.headers["attributes"] & _CONTROL == 0).take(found.batch)
    return _nullable(int16_at(found.block.data, found.value), is_data & (found.value_length >= 2))


def _nullable(values: npt.NDArray[np.int16], there: Bools) -> pa.Array:
    return pa.array(values, mask=None if there.all() else ~there)


def int16_at(data: Bytes, at: Ints) -> npt.NDArray[np.int16]:
    """Return the signed 16-bit numbers at these positions; the value is undefined for positions out of
    bounds."""
    if not len(data):
        return np.zeros(len(at), np.int16)
    high = data.take(at, mode="clip").astype(np.int16)
    return (high << 8) | data.take(at + 1, mode="clip")


def _keys(found: Records) -> pa.Array:
    return _bytes(found.block.data, found.key, found.key_length)


def _values(found: Records) -> pa.Array:
    return _bytes(found.block.data, found.value, found.value_length)


def _bytes(data: Bytes, at: Ints, length: Ints) -> pa.Array:
    """Return the bytes at these positions, null where the length is negative."""
    ends = np.empty((len(at), 2), np.int32)
    ends[:, 0] = at
    ends[:, 1] = at + np.maximum(length, 0)
    return _every(data, ends.reshape(-1), 2, 0, length < 0)


def _headers(found: Records) -> pa.Array:
    """Return the encoded headers of each record, from their count on; null for records without headers."""
    n = len(found)
    none = found.headers + 1 == found.end
    if none.all():
        return pa.nulls(n, pa.binary())
    ends = np.stack([found.headers, found.end], axis=1).astype(np.int32)
    return _every(found.block.data, ends.reshape(-1), 2, 0, none)


def _every(
    data: Bytes, ends: npt.NDArray[np.int32], step: int, first: int, null: Bools, kind: pa.DataType = _BINARY
) -> pa.Array:
    """Return every `step`-th of the slices of `data` between consecutive `ends`, from number `first` on.

    The result has its own array of type `kind`, with null where the mask `null` is set. Strings are not
    verified."""
    if not len(ends):
        return pa.array([], kind)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    spans = pa.Array.from_buffers(kind, len(ends) - 1, buffers)
    picked = np.arange(first, len(ends), step, dtype=np.int32)
    return spans.take(pa.array(picked, mask=null if null.any() else None))


def texts(data: Bytes, at: Ints, length: Ints, there: Bools) -> tuple[pa.Array, Bools]:
    """Return UTF-8 strings at these positions of `data`, and a mask of the valid ones.

    Positions must be ascending, and strings must not overlap. A string is null where `there` is False or the
    bytes are not UTF-8."""
    found = spans(data, at, length, there, pa.string())
    if _is_ascii(found):
        return found, there
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        found = spans(data, at, length, there)
        there = there & np.array([_is_text(value) for value in found.to_pylist()], bool)
        found = spans(data, at, length, there, pa.string())
    return found, there


def _is_ascii(found: pa.Array) -> bool:
    """Return True if all strings of an array are ASCII, which is much cheaper to find than valid UTF-8."""
    data = found.buffers()[2]
    return data is None or not np.frombuffer(data, np.uint8).max(initial=0) & 0x80


def spans(data: Bytes, at: Ints, length: Ints, there: Bools, kind: pa.DataType = _BINARY) -> pa.Array:
    """Return values at these positions of `data` as an array of type `kind`, null where `there` is False.

    Positions must be ascending, and values must not overlap."""
    end = at + length
    if not there.all():
        empty = np.maximum.accumulate(np.where(there, end, 0))
        at, end = np.where(there, at, empty), np.where(there, end, empty)
    ends = np.stack([at, end], axis=1).astype(np.int32)
    return _every(data, ends.reshape(-1), 2, 0, ~there, kind)


def _is_text(value: bytes | None) -> bool:
    try:
        return value is not None and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _group_ids(found: Records) -> pa.Array:
    """Return the first string of each key, which follows its type.

    It is null if the key is too short for one, or if it has no type."""
    length = int16_at(found.block.data, found.key + 2).astype(np.int64)
    there = _typed(found) & (found.key_length >= 4) & (length >= 0) & (length + 4 <= found.key_length)
    return texts(found.block.data, found.key + 4, length, there)[0]


_COLUMNS: dict[str, Callable[[Records], pa.Array]] = {
    "offset": lambda found: pa.array(found.offset),
    "timestamp_ms": lambda found: pa.array(found.timestamp),
    "batch_base_offset": _header("base_offset", np.int64),
    "batch_last_offset": _of_batch(
        lambda block: block.column("base_offset") + block.headers["last_offset_delta"]
    ),
    "batch_records": _header("record_count", np.int32),
    "leader_epoch": _header("leader_epoch", np.int32),
    "attributes": _header("attributes", np.int16),
    "producer_id": _header("producer_id", np.int64),
    "producer_epoch": _header("producer_epoch", np.int16),
    "key": _keys,
    "value": _values,
    "headers": _headers,
    "key_type": _key_types,
    "value_version": _value_versions,
    "group_id": _group_ids,
}
"""Functions that make the columns of `coordinator_record` that follow from the records alone."""
