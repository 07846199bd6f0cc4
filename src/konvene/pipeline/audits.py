"""The rows of `__konvene_audit` as the table `audit_event`.

A row that is not in the audit's own words (another type, a version that a later broker writes) is left out:
what it may have said is then inferred from the log that it explains, as where there is no audit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from konvene.pipeline.codec.audit import AUDIT_TOPIC, events
from konvene.pipeline.codec.bronze import located
from konvene.pipeline.files import Partition

__all__ = ["AUDIT_TOPIC", "audit_rows"]

_ROWS = 1000


def audit_rows(records: pa.RecordBatch, of: Partition) -> Iterator[pa.RecordBatch]:
    """The rows in some records of bronze's columns, a thousand at a time: one can list many members."""
    for at in range(0, records.num_rows, _ROWS):
        rows, _ = events(located(records.slice(at, _ROWS), of.cluster, of.topic, of.partition))
        if rows.num_rows:
            yield rows
