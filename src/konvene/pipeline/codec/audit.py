"""The rows of `__konvene_audit` as `audit_event`.

They are read as any other record type is (`typed`); only the names of some columns are others, and a
tombstone is no row. A row of another type says nothing that has a place here.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from konvene.internal_topics import AUDIT_TOPIC
from konvene.pipeline.codec.typed import SilverTable
from konvene.pipeline.tables import TABLES
from konvene.records.audit import RebalanceKey
from konvene.records.coordinator import AUDIT_RECORDS

__all__ = ["events"]

_KIND = AUDIT_RECORDS[RebalanceKey.__key__]
_TABLE = SilverTable(AUDIT_TOPIC, _KIND)
_NAMES = {"audit_partition": "log_partition", "audit_offset": "offset", "group_id": "group"}


def events(records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Rows of `coordinator_record`, read from the audit's log, as rows of `audit_event`; and as rows of
    `quarantine` those that cannot be read."""
    told = pc.and_(
        pc.equal(pc.fill_null(records.column("key_type"), -1), _KIND.code), records.column("value").is_valid()
    )
    typed, bad = _TABLE.decode(records if pc.all(told).as_py() else records.filter(told))
    schema = TABLES["audit_event"].schema
    columns = [typed.column(_NAMES.get(f.name, f.name)) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema), bad
