"""Lag of share groups, minute by minute: records that are not completed, and how far the logs had grown.

There is a row for each minute of `share_progress` in which the state had a start offset, which stands for the
committed offset: all records before it are completed. Some records after it may be completed as well; where
the state has their number, they do not count as lag. `konvene.pipeline.gold.lag` explains how the log end and
the age of the oldest uncompleted record are known.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from konvene.pipeline.arrays import Ints, ints
from konvene.pipeline.gold.lag import EVIDENCE, MINUTE_MS, UNKNOWN, Ends, StoredEnds, Stretches, behind_of
from konvene.pipeline.tables import TABLES

__all__ = ["share_lag"]

_MISSING = 2


def share_lag(progress: pa.RecordBatch, ends: Ends | StoredEnds) -> pa.RecordBatch:
    """Return the rows of `lag` that follow from rows of `share_progress`, in their order."""
    rows = progress.filter(pc.greater_equal(progress["start_offset"], 0))
    minute, start = ints(rows["minute_ms"]) // MINUTE_MS, ints(rows["start_offset"])
    found = [np.full(rows.num_rows, UNKNOWN) for _ in range(3)]
    evidence = np.zeros(rows.num_rows, np.int64)
    for where, log in _logs(rows, ends):
        behind = behind_of(log, minute[where], start[where])
        completed = ints(rows["complete_count"], 0)[where]
        remaining = np.where(behind.lag == UNKNOWN, UNKNOWN, np.maximum(behind.lag - completed, 0))
        age_ms = np.where(remaining == 0, 0, behind.age_ms)
        for column, values in zip(found, (behind.end, remaining, age_ms), strict=True):
            column[where] = values
        evidence[where] = behind.evidence
    lost = pc.equal(rows["evidence"], "missing").to_numpy(zero_copy_only=False)
    end, remaining, age_ms = (pa.array(values, pa.int64(), mask=values == UNKNOWN) for values in found)
    values_by_name = {
        "committed_offset": rows["start_offset"],
        "commit_ms": rows["last_ms"],
        "commits": rows["records"],
        "log_end_offset": end,
        "lag": remaining,
        "time_lag_ms": age_ms,
        "evidence": EVIDENCE.take(pa.array(np.where(lost, _MISSING, evidence))),
    }
    schema = TABLES["lag"].schema
    columns = [
        (values_by_name[kind.name] if kind.name in values_by_name else rows[kind.name]).cast(kind.type)
        for kind in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _logs(rows: pa.RecordBatch, ends: Ends | StoredEnds) -> Iterator[tuple[Ints, Stretches]]:
    """Yield for each partition with known log ends the indices of its rows, and the stretches of its log."""
    rows_of: dict[tuple[str, int], list[int]] = {}
    for at, partition in enumerate(
        zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    ):
        rows_of.setdefault(partition, []).append(at)
    for partition, where in rows_of.items():
        log = ends.of(*partition)
        if log is not None:
            yield np.array(where), log
