"""The rows of `__konvene_audit` as the table `audit_event`.

A row of another type is left out, and one that cannot be read (a version that a later broker writes) is in
quarantine: what it may have said is then inferred from the log that it explains, as where there is no audit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from konvene.pipeline.codec.audit import events
from konvene.pipeline.codec.bronze import located
from konvene.pipeline.sources.files import Partition

__all__ = ["audit_rows"]

_ROWS = 1000


def audit_rows(
    records: pa.RecordBatch, of: Partition
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """The rows in some records of bronze's columns, a thousand at a time: one can list many members. Beside
    them, as rows of `quarantine`, those that cannot be read."""
    for at in range(0, records.num_rows, _ROWS):
        yield events(located(records.slice(at, _ROWS), of.cluster, of.topic, of.partition))
