"""The rows of `__konvene_audit` as the table `audit_event`.

Rows of other types are left out; a row that cannot be read (a version that a later broker writes) goes to
quarantine: the causes that it had are then inferred from the log, as without an audit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from konvene.pipeline.codec.audit import events
from konvene.pipeline.codec.bronze import LogRecords

__all__ = ["audit_rows"]

_ROWS = 1000


def audit_rows(records: LogRecords) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """Decode records of the audit topic, a thousand at a time, since one row can list many members.

    Yields pairs: rows of `audit_event`, and rows of `quarantine` for what cannot be decoded, or None."""
    for at in range(0, len(records), _ROWS):
        yield events(records.slice(at, _ROWS))
