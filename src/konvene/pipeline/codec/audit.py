"""Decodes the rows of `__konvene_audit` into the table `audit_event`.

They are decoded like any other record type (`typed`), with other names for some columns; tombstones and rows
of other types are dropped.
"""

from __future__ import annotations

import pyarrow as pa

from konvene.internal_topics import AUDIT_TOPIC
from konvene.pipeline.codec.bronze import LogRecords
from konvene.pipeline.codec.typed import SilverTable
from konvene.pipeline.tables import TABLES
from konvene.records.audit import RebalanceKey
from konvene.records.coordinator import AUDIT_RECORDS

__all__ = ["events"]

_KIND = AUDIT_RECORDS[RebalanceKey.__key__]
_TABLE = SilverTable(AUDIT_TOPIC, _KIND)
_NAMES = {"audit_partition": "log_partition", "audit_offset": "offset", "group_id": "group"}


def events(records: LogRecords) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Decode records of the audit topic.

    Returns rows of `audit_event`, and rows of `quarantine` for what cannot be decoded, or None."""
    records = records.of_type(_KIND.code)
    typed, bad = _TABLE.decode(records.filter(records.found.value_length >= 0))
    schema = TABLES["audit_event"].schema
    columns = [typed.column(_NAMES.get(f.name, f.name)) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema), bad
