"""Records of any topic as rows of the table `record`, column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from konvene.codec.batches import TimestampType
from konvene.pipeline.arrays import Bools
from konvene.pipeline.codec.bronze import LogRecords, spans, texts
from konvene.pipeline.codec.records import Records, zigzag
from konvene.pipeline.tables.record import HEADERS, RECORD

__all__ = ["is_transactional", "user_records", "without_control"]

_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20


def user_records(records: LogRecords, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return records as rows of `record`, with these columns or with all."""
    schema = RECORD.schema if names is None else pa.schema([RECORD.schema.field(name) for name in names])
    columns = [_OWN[name](records.found) if name in _OWN else records.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without_control(records: LogRecords) -> LogRecords:
    """Return the records without those of control batches."""
    return records.filter(~_has(records.found, _CONTROL))


def is_transactional(records: LogRecords) -> Bools:
    """Return a mask of the records that belong to a transaction."""
    return _has(records.found, _TRANSACTIONAL)


def _has(found: Records, attribute: int) -> Bools:
    has: Bools = (found.block.headers["attributes"] & attribute != 0).take(found.batch)
    return has


def _timestamp_types(found: Records) -> pa.Array:
    labels = pa.array([each.label for each in TimestampType])
    return labels.take(pa.array(_has(found, _LOG_APPEND_TIME).astype(np.int8)))


def _headers(found: Records) -> pa.Array:
    """Decode the headers of all records: the first ones of all, then the second ones, and so on.

    They are valid: records with others were rejected with their batch."""
    data, pos = found.block.data, found.headers.copy()
    count = zigzag(data, pos, 5)
    ends = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=ends[1:])
    where = np.zeros((4, int(ends[-1])), np.int64)
    for step in range(int(count.max(initial=0))):
        rows = np.flatnonzero(count > step)
        at, here = pos[rows], ends[rows] + step
        for begin, length in ((where[0], where[1]), (where[2], where[3])):
            size = zigzag(data, at, 5)
            begin[here], length[here] = at, size
            at += np.maximum(size, 0)
        pos[rows] = at
    key, key_length, value, value_length = where
    every = np.ones(len(key), bool)
    keys = texts(data, key, key_length, every)[0]
    values = spans(data, value, np.maximum(value_length, 0), value_length >= 0)
    kind = HEADERS.value_type
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind))
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pairs, type=HEADERS)


_OWN: dict[str, Callable[[Records], pa.Array]] = {
    "timestamp_type": _timestamp_types,
    "headers": _headers,
    "is_transactional": lambda found: pa.array(_has(found, _TRANSACTIONAL)),
}
"""Functions that make the columns that `coordinator_record` does not have, or has otherwise."""
