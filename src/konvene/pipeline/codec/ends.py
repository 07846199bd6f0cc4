"""Log ends over time, from batch headers alone.

No record is decoded and no checksum is verified: of a mapped file only the pages with batch headers are read.
So a header is accepted if it is plausible and leads to another one. Otherwise the log is searched for the
next batch with a valid checksum, and the bytes between are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from konvene.pipeline.codec.batches import Headers, Source, headers
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.common import WHERE

__all__ = ["ENDS", "log_ends"]

ENDS = pa.schema([f for f in TABLES["log_end"].schema if f.name not in {column.name for column in WHERE}])

MAX_BATCHES = 1000
"""Maximum number of batches of a stretch, which also ends with the minute in which its first batch was
written."""

_MINUTE_MS = 60_000
_CHUNK = 100_000
_LOG_APPEND_TIME, _DELETE_HORIZON = 0x08, 0x40


def log_ends(buf: Source, *, position: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield rows of `log_end`, without the columns of the log, for the batches that begin in
    `buf[position:end]`.

    A row is a stretch of batches of one minute, `MAX_BATCHES` at most. No input raises an error."""
    for found in headers(buf, position, end, most=_CHUNK):
        if len(found):
            yield _stretches(found)


def _stretches(found: Headers) -> pa.RecordBatch:
    last_ms = found["max_timestamp"].astype(np.int64)
    first_ms = np.where(
        found["attributes"] & (_LOG_APPEND_TIME | _DELETE_HORIZON), last_ms, found["base_timestamp"]
    )
    first_ms = np.minimum(first_ms.astype(np.int64), last_ms)
    minute = np.maximum.accumulate(last_ms) // _MINUTE_MS
    fresh = np.concatenate([[0], np.flatnonzero(minute[1:] != minute[:-1]) + 1])
    sizes = np.diff(np.append(fresh, len(found)))
    begins = np.concatenate(
        [np.arange(at, at + n, MAX_BATCHES) for at, n in zip(fresh.tolist(), sizes.tolist(), strict=True)]
    )
    offsets = found["base_offset"].astype(np.int64)
    after = offsets + found["last_offset_delta"] + 1
    columns = [
        np.maximum.reduceat(last_ms, begins),
        np.minimum.reduceat(first_ms, begins),
        offsets[begins],
        np.maximum.reduceat(after, begins),
        np.diff(np.append(begins, len(found))).astype(np.int32),
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=ENDS)
