"""Defines `record`: the records of any topic, as the data source reads them from its log."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

__all__ = ["HEADERS", "RECORD"]

HEADERS = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
        nullable=False,
    )
)

RECORD = Table(
    "record",
    "bronze",
    "The records of users' topics, with keys and values as bytes. Control records (the ends of transactions) "
    "are not included. Records of aborted and of unfinished transactions are, unless `isolationLevel` is "
    "`read_committed`. Only the Spark data source reads this table; an ingest does not write it.",
    (
        *WHERE,
        Column("offset", pa.int64(), "The offset of the record."),
        Column("timestamp_ms", pa.int64(), "When it was created or appended; see `timestamp_type`."),
        Column("timestamp_type", pa.string(), "`CreateTime` or `LogAppendTime`."),
        Column("key", pa.binary(), "The key's bytes.", nullable=True),
        Column("value", pa.binary(), "The value's bytes; null is a tombstone.", nullable=True),
        Column("headers", HEADERS, "The headers, in their order."),
        Column("leader_epoch", pa.int32(), "The leader epoch of its batch; -1 if unknown."),
        Column("producer_id", pa.int64(), "-1 if the producer is not idempotent."),
        Column("producer_epoch", pa.int16(), "-1 if the producer is not idempotent."),
        Column("is_transactional", pa.bool_(), "Whether it belongs to a transaction."),
    ),
    key=("cluster", "topic", "partition", "offset"),
)  # fmt: skip
