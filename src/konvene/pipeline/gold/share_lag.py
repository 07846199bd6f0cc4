"""Lag of share groups, minute by minute: what is not done with, beside how far the logs had grown then.

A row for each minute of `share_progress` in which the state had a start offset. What stands for the committed
offset is the start offset: everything before it is done with. Behind it some records may be done with as
well; where the state says how many, they are no lag. How the log's end is known, and how old the oldest
record is that is not done with, is told in `konvene.pipeline.gold.lag`.
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
    """The rows of `lag` that follow from rows of `share_progress`, in their order."""
    rows = progress.filter(pc.greater_equal(progress["start_offset"], 0))
    minute, start = ints(rows["minute_ms"]) // MINUTE_MS, ints(rows["start_offset"])
    found = [np.full(rows.num_rows, UNKNOWN) for _ in range(3)]
    evidence = np.zeros(rows.num_rows, np.int64)
    for where, log in _logs(rows, ends):
        behind = behind_of(log, minute[where], start[where])
        done = ints(rows["complete_count"], 0)[where]
        left = np.where(behind.lag == UNKNOWN, UNKNOWN, np.maximum(behind.lag - done, 0))
        age_ms = np.where(left == 0, 0, behind.age_ms)
        for column, values in zip(found, (behind.end, left, age_ms), strict=True):
            column[where] = values
        evidence[where] = behind.evidence
    lost = pc.equal(rows["evidence"], "missing").to_numpy(zero_copy_only=False)
    end, left, age_ms = (pa.array(values, pa.int64(), mask=values == UNKNOWN) for values in found)
    told = {
        "committed_offset": rows["start_offset"],
        "commit_ms": rows["last_ms"],
        "commits": rows["records"],
        "log_end_offset": end,
        "lag": left,
        "time_lag_ms": age_ms,
        "evidence": EVIDENCE.take(pa.array(np.where(lost, _MISSING, evidence))),
    }
    schema = TABLES["lag"].schema
    columns = [(told[kind.name] if kind.name in told else rows[kind.name]).cast(kind.type) for kind in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _logs(rows: pa.RecordBatch, ends: Ends | StoredEnds) -> Iterator[tuple[Ints, Stretches]]:
    """For each partition of which the log's end is known: its rows."""
    places: dict[tuple[str, int], list[int]] = {}
    for at, place in enumerate(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)):
        places.setdefault(place, []).append(at)
    for place, where in places.items():
        log = ends.of(*place)
        if log is not None:
            yield np.array(where), log
