"""Silver: a table for each type of record that a coordinator writes, derived from its declaration.

The columns are the position of the record, whether it is a tombstone, the fields of its key, and those of its
value, all null for a tombstone. Names are those of the declarations, except for the offset of a commit, since
the record's own offset has that name. All versions have the same columns; missing fields have defaults.

Rows are decoded many at a time: commits, a hundred times as frequent as all others, by `commits`, the others
by `flat`. Unusual rows, and small numbers of rows, are decoded one by one by the broker's own decoder. What
that rejects becomes a row of quarantine with the reason; types without a table are in bronze only, as are the
rows of `__konvene_audit` (`audit_event`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.schema import Field, Struct
from konvene.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from konvene.pipeline.codec import columns, commits, flat
from konvene.pipeline.codec.batches import MAX_QUARANTINED_BYTES
from konvene.pipeline.codec.bronze import LogRecords
from konvene.pipeline.tables import TABLES
from konvene.pipeline.tables.common import CLUSTER
from konvene.records.coordinator import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordType,
    value_version,
)
from konvene.records.offsets import LegacyOffsetCommitKey, OffsetCommitKey

__all__ = ["POSITION_COLUMNS", "TYPED", "SilverTable"]

POSITION_COLUMNS = (
    pa.field("cluster", CLUSTER.type, nullable=False),
    pa.field("log_topic", pa.string(), nullable=False),
    pa.field("log_partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("batch_base_offset", pa.int64(), nullable=False),
    pa.field("tombstone", pa.bool_(), nullable=False),
)
"""The first columns of every silver table."""

MAX_SCALAR_ROWS = 64
"""Up to this number of rows, decoding row by row is as fast."""

_COMMITS = (OffsetCommitKey, LegacyOffsetCommitKey)
_RENAMED: dict[tuple[type[Struct], str], str] = {(key, "offset"): "committed_offset" for key in _COMMITS}


@dataclass(frozen=True)
class SilverTable:
    """The silver table of one record type of one coordinator's log."""

    log_topic: str
    kind: RecordType

    def __repr__(self) -> str:
        return f"<silver table {self.name}, {len(self.schema)} columns>"

    @property
    def name(self) -> str:
        return self.kind.name.lower()

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row of the table."""
        return ("cluster", "log_partition", "offset")

    @cached_property
    def schema(self) -> pa.Schema:
        names = {f.name: _RENAMED.get((self.kind.key, f.name), f.name) for f in self.kind.value.__fields__}
        values = [f.with_name(names[f.name]) for f in columns.fields(self.kind.value, nullable=True)]
        return pa.schema([*POSITION_COLUMNS, *columns.fields(self.kind.key), *values])

    def decode(
        self, records: LogRecords, names: Collection[str] | None = None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Decode records of this type into rows of this table, and undecodable ones into rows of
        `quarantine`.

        With `names` the values of other columns may be missing in the rows."""
        if len(records) < MAX_SCALAR_ROWS:
            return self._one_by_one(records)
        if self.kind.key in _COMMITS:
            ids = names is None or "topic_id" in names
            plain, columns_ = commits.decode(records, self.kind.key is LegacyOffsetCommitKey, ids=ids)
        else:
            plain, columns_ = flat.decode(records, self.kind)
        fast = self._rows(records.filter(plain), columns_)
        if plain.all():
            return fast, None
        rest, bad = self._one_by_one(records.filter(~plain))
        both = pa.Table.from_batches([fast, rest]).sort_by("offset").combine_chunks().to_batches()
        return both[0] if both else fast, bad

    def _rows(self, records: LogRecords, typed: Sequence[pa.Array]) -> pa.RecordBatch:
        where = [records.column(n) for n in ("cluster", "topic", "partition")]
        where += [records.column(f.name) for f in POSITION_COLUMNS[3:-1]]
        tombstone = pa.array(records.found.value_length < 0)
        return pa.RecordBatch.from_arrays([*where, tombstone, *typed], schema=self.schema)

    def _one_by_one(self, records: LogRecords) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Decode row by row with the broker's decoder, and convert all values to columns at once."""
        keys: list[Struct] = []
        values: list[Struct | None] = []
        good = np.ones(len(records), bool)
        bad: list[str] = []
        raw = zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
        for i, (key, value) in enumerate(raw):
            try:
                decoded = _value(self.kind, value)
                keys.append(decode(self.kind.key, 0, key or b"", 2))
                values.append(decoded)
            except CodecError as error:
                good[i] = False
                bad.append(str(error))
        typed = [_column(f, keys) for f in self.kind.key.__fields__]
        typed += [_column(f, values) for f in self.kind.value.__fields__]
        return self._rows(records.filter(good), typed), _quarantined(records.filter(~good), bad)


def _value(kind: RecordType, value: bytes | None) -> Struct | None:
    return None if value is None else decode(kind.value, value_version(kind, value), value, 2)


def _column(f: Field, rows: Sequence[Struct | None]) -> pa.Array:
    return columns.column(f, [None if row is None else getattr(row, f.name) for row in rows])


def _quarantined(rows: LogRecords, reasons: list[str]) -> pa.RecordBatch | None:
    """Return rows of `quarantine` for undecodable records and the reasons; None if there are none.

    A record's bytes are its key and its value."""
    if not reasons:
        return None
    pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
    contents = [(key or b"") + (value or b"") for key, value in pairs]
    made: dict[str, pa.Array] = {
        name: rows.column(name) for name in ("cluster", "topic", "partition", "file_position", "offset")
    }
    made["segment_base_offset"] = rows.column("segment_base_offset")
    made["length"] = pa.array([len(data) for data in contents], pa.int64())
    made["reason"] = pa.array(reasons, pa.string())
    made["bytes"] = pa.array([data[:MAX_QUARANTINED_BYTES] for data in contents], pa.binary())
    schema = TABLES["quarantine"].schema
    return pa.RecordBatch.from_arrays([made[f.name] for f in schema], schema=schema)


_LOGS = {
    OFFSETS_TOPIC: GROUP_RECORDS,
    SHARE_STATE_TOPIC: SHARE_STATE_RECORDS,
    TRANSACTION_TOPIC: TRANSACTION_RECORDS,
}

TYPED: dict[tuple[str, int], SilverTable] = {
    (topic, kind.code): SilverTable(topic, kind) for topic, table in _LOGS.items() for kind in table.values()
}
"""Silver tables by the log's topic and the type in the key."""
