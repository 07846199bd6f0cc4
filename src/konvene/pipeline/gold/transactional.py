"""The rows of `transactional_commit`, as transactions end.

The outcome of a commit is known where its effect is computed (`konvene.pipeline.gold.commits`), in the same
pass over the log that computes `lag`. A producer's name is in another log, that of the transaction
coordinator; producer ids are never reused, so any record there names the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from konvene.pipeline.arrays import ints
from konvene.pipeline.gold.commits import PENDING, Ended
from konvene.pipeline.tables import TABLES

__all__ = ["NAMED", "names_of", "rows_of"]

NAMED = ("transactional_id", "producer_id")
"""The columns of `transaction_log` that are read."""

_OUTCOME = pa.array(["pending", "aborted", "committed"], pa.string())


def names_of(transactions: Iterable[pa.RecordBatch]) -> dict[int, str]:
    """Return transactional ids by producer id, from rows of silver's `transaction_log`."""
    found: dict[int, str] = {}
    for batch in transactions:
        names, producers = (batch[name].to_pylist() for name in NAMED)
        found |= {
            producer_id: name
            for producer_id, name in zip(producers, names, strict=True)
            if producer_id is not None
        }
    return found


def rows_of(ended: Ended, log_partition: int, names: Mapping[int, str]) -> pa.RecordBatch:
    """Return rows of `transactional_commit`; `names` are transactional ids by producer id."""
    count = len(ended.producer)
    pending = ended.outcome == PENDING
    columns = {
        "cluster": ended.rows["cluster"],
        "group_id": ended.rows["group"],
        "topic": ended.rows["topic"],
        "partition": ended.rows["partition"],
        "log_partition": np.full(count, log_partition),
        "log_offset": ended.rows["offset"],
        "timestamp_ms": ended.rows["timestamp_ms"],
        "committed_offset": ints(ended.rows["committed_offset"], null=-1),
        "producer_id": ended.producer,
        "producer_epoch": ended.epoch,
        "transactional_id": [names.get(producer_id) for producer_id in ended.producer.tolist()],
        "outcome": _OUTCOME.take(pa.array(ended.outcome - PENDING)),
        "ended_offset": pa.array(ended.offset, pa.int64(), mask=pending),
        "ended_ms": pa.array(ended.ms, pa.int64(), mask=pending),
        "counted": pa.array(ended.counted, pa.bool_(), mask=pending),
    }
    schema = TABLES["transactional_commit"].schema
    arrays = [_column(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(values: object, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
