"""Decodes a piece of a coordinator's log into the table `coordinator_record`, column by column.

Keys and values are copied once, from the log into the columns. Of their contents only three fields are read:
the type in the key, the version in the value, and the first string of the key, which is the group id of all
records of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from konvene.codec.compression import DEFAULT_LIMIT
from konvene.pipeline.arrays import Bools, Ints
from konvene.pipeline.codec.batches import MAX_BYTES, MAX_RECORDS, Bad, Bytes, Source, walk
from konvene.pipeline.codec.records import Records, parse
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.common import WHERE

__all__ = [
    "QUARANTINE",
    "RECORDS",
    "Decoded",
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

_CONTROL = 0x20
_PER_BATCH = ("leader_epoch", "attributes", "producer_id", "producer_epoch")


@dataclass(slots=True)
class Decoded:
    """Decoded records of a piece of log, and the batches and records that could not be decoded."""

    records: pa.RecordBatch
    quarantine: pa.RecordBatch | None
    next_position: int
    """Where to continue in the buffer: everything before it is in this block or an earlier one."""
    first_offset: int
    """Base offset of the first batch of these records; -1 if there is none."""
    last_offset: int
    """Last offset of their last batch, which may lie after the last remaining record; -1 if there is none."""


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
) -> Iterator[Decoded]:
    """Yield the records of the batches that begin in `buf[position:end]`, some ten thousand at a time.

    `origin` is the position of the buffer in the segment. Without a segment, `segment_base` is -1 and so are
    all positions in the tables. A batch cut off by the end of the buffer is not decoded: the last
    `next_position` is its start. No input raises an error."""
    for block in walk(buf, position, end, most_records=most_records, most_bytes=most_bytes, limit=limit):
        for found in parse(block, buf, most_records=most_records):
            quarantine = quarantined(found.block.bad, segment_base, origin) if found.last else None
            headers = found.block.headers
            many = len(headers) > 0
            yield Decoded(
                _table(found, segment_base, origin),
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


def _table(found: Records, segment_base: int, origin: int) -> pa.RecordBatch:
    block, batch, n = found.block, found.batch, len(found)
    headers = block.headers
    base = block.column("base_offset")
    per_batch = {
        "batch_base_offset": base,
        "batch_last_offset": base + headers["last_offset_delta"],
        "batch_records": headers["record_count"].astype(np.int32),
        "leader_epoch": headers["leader_epoch"].astype(np.int32),
        "attributes": headers["attributes"].astype(np.int16),
        "producer_id": block.column("producer_id"),
        "producer_epoch": headers["producer_epoch"].astype(np.int16),
        "file_position": block.positions + origin if segment_base >= 0 else np.full_like(base, -1),
    }
    columns = {name: pa.array(values.take(batch)) for name, values in per_batch.items()}
    columns["offset"] = pa.array(found.offset)
    columns["timestamp_ms"] = pa.array(found.timestamp)
    columns["segment_base_offset"] = pa.array(np.full(n, segment_base, np.int64))
    columns["key"], columns["value"] = _keys_and_values(found)
    columns["headers"] = _headers(found)
    data, plain = block.data, (headers["attributes"] & _CONTROL == 0).take(batch)
    typed = plain & (found.key_length >= 2)
    columns["key_type"] = _nullable(int16_at(data, found.key), typed)
    columns["value_version"] = _nullable(int16_at(data, found.value), plain & (found.value_length >= 2))
    columns["group_id"] = _group_ids(found, typed)
    return pa.RecordBatch.from_arrays([columns[f.name] for f in RECORDS], schema=RECORDS)


def _nullable(values: npt.NDArray[np.int16], there: Bools) -> pa.Array:
    return pa.array(values, mask=None if there.all() else ~there)


def int16_at(data: Bytes, at: Ints) -> npt.NDArray[np.int16]:
    """Return the signed 16-bit numbers at these positions; the value is undefined for positions out of
    bounds."""
    if not len(data):
        return np.zeros(len(at), np.int16)
    high = data.take(at, mode="clip").astype(np.int16)
    return (high << 8) | data.take(at + 1, mode="clip")


def _keys_and_values(found: Records) -> tuple[pa.Array, pa.Array]:
    """Return keys and values as two slices of one binary array over the log, whose elements are key, gap,
    value, gap, …"""
    n = len(found)
    ends = np.empty((n, 4), np.int32)
    ends[:, 0] = found.key
    ends[:, 1] = found.key + np.maximum(found.key_length, 0)
    ends[:, 2] = found.value
    ends[:, 3] = found.value + np.maximum(found.value_length, 0)
    return (
        _every(found.block.data, ends.reshape(-1), 4, 0, found.key_length < 0),
        _every(found.block.data, ends.reshape(-1), 4, 2, found.value_length < 0),
    )


def _headers(found: Records) -> pa.Array:
    """Return the encoded headers of each record, from their count on; null for records without headers."""
    n = len(found)
    none = found.headers + 1 == found.end
    if none.all():
        return pa.nulls(n, pa.binary())
    ends = np.stack([found.headers, found.end], axis=1).astype(np.int32)
    return _every(found.block.data, ends.reshape(-1), 2, 0, none)


def _every(data: Bytes, ends: npt.NDArray[np.int32], step: int, first: int, null: Bools) -> pa.Array:
    """Return every `step`-th of the slices of `data` between consecutive `ends`, from number `first` on.

    The result has its own array, with null where the mask `null` is set."""
    if not len(ends):
        return pa.array([], pa.binary())
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    spans = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
    picked = np.arange(first, len(ends), step, dtype=np.int32)
    return spans.take(pa.array(picked, mask=null if null.any() else None))


def texts(data: Bytes, at: Ints, length: Ints, there: Bools) -> tuple[pa.Array, Bools]:
    """Return UTF-8 strings at these positions of `data`, and a mask of the valid ones.

    Positions must be ascending, and strings must not overlap. A string is null where `there` is False or the
    bytes are not UTF-8."""
    found = spans(data, at, length, there)
    try:
        return found.cast(pa.string()), there
    except pa.ArrowInvalid:
        there = there & np.array([_is_text(value) for value in found.to_pylist()], bool)
        return spans(data, at, length, there).cast(pa.string()), there


def spans(data: Bytes, at: Ints, length: Ints, there: Bools) -> pa.Array:
    """Return binary values at these positions of `data`, null where `there` is False.

    Positions must be ascending, and values must not overlap."""
    end = at + length
    if not there.all():
        empty = np.maximum.accumulate(np.where(there, end, 0))
        at, end = np.where(there, at, empty), np.where(there, end, empty)
    ends = np.stack([at, end], axis=1).astype(np.int32)
    return _every(data, ends.reshape(-1), 2, 0, ~there)


def _is_text(value: bytes | None) -> bool:
    try:
        return value is not None and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _group_ids(found: Records, typed: Bools) -> pa.Array:
    """Return the first string of each key, which follows its type.

    It is null if the key is too short for one, or if the mask `typed` is not set."""
    length = int16_at(found.block.data, found.key + 2).astype(np.int64)
    there = typed & (found.key_length >= 4) & (length >= 0) & (length + 4 <= found.key_length)
    return texts(found.block.data, found.key + 4, length, there)[0]
