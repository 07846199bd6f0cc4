"""The rows of `__konvene_audit` as the table `audit_event`.

A row that is not in the audit's own words (another type, a version that a later broker writes) is left out:
what it may have said is then inferred from the log that it explains, as where there is no audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from konvene.codec.errors import CodecError
from konvene.pipeline.files import Partition
from konvene.pipeline.tables import TABLES
from konvene.records.audit import Cause, RebalancedMember, RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, decode_record

__all__ = ["AUDIT_TOPIC", "audit_rows"]

AUDIT_TOPIC = "__konvene_audit"
_ROWS = 1000


def audit_rows(records: pa.RecordBatch, of: Partition) -> Iterator[pa.RecordBatch]:
    """The rows in some records of bronze's columns, a thousand at a time: one can list many members."""
    schema = TABLES["audit_event"].schema
    for at in range(0, records.num_rows, _ROWS):
        part = records.slice(at, _ROWS)
        columns = (part.column(name).to_pylist() for name in ("offset", "timestamp_ms", "key", "value"))
        rows = [row for each in zip(*columns, strict=True) if (row := _row(of, *each)) is not None]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _row(
    of: Partition, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> dict[str, Any] | None:
    try:
        record = decode_record(key, value, AUDIT_RECORDS) if key is not None else None
    except CodecError:
        return None
    if record is None or not isinstance(record.key, RebalanceKey):
        return None
    if not isinstance(record.value, RebalanceValue):
        return None
    said = record.value
    return {
        "cluster": of.cluster,
        "audit_partition": of.partition,
        "audit_offset": offset,
        "timestamp_ms": timestamp_ms,
        "group_id": record.key.group,
        **{name: getattr(said, name) for name in _PLAIN},
        "causes": [_fields(c, Cause) for c in said.causes],
        "members": [_fields(m, RebalancedMember) for m in said.members],
        "moved": list(said.moved),
    }


def _fields(value: Any, declared: type[Any]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in declared.__annotations__}


_PLAIN = tuple(name for name in RebalanceValue.__annotations__ if name not in ("causes", "members", "moved"))
