"""The rows of `__konvene_audit` as the table `audit_event`.

Rows of other types are left out; a row that cannot be read (a version that a later broker writes) goes to
quarantine: the causes that it had are then inferred from the log, as without an audit.
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
    """Yield the audit rows of bronze records, a thousand at a time (one row can list many members), with the
    unreadable ones as rows of `quarantine`."""
    for at in range(0, records.num_rows, _ROWS):
        yield events(located(records.slice(at, _ROWS), of.cluster, of.topic, of.partition))
