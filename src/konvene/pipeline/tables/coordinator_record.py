"""Defines `coordinator_record`: every record of a coordinator's log, unchanged."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "coordinator_record",
    "bronze",
    "Every record of the coordinators' logs, byte for byte, with the header of its batch. Records of other "
    "topics are not included.",
    (
        *WHERE,
        Column("offset", pa.int64(), "The offset of the record."),
        Column("timestamp_ms", pa.int64(), "When it was created; with log-append time, when it was "
               "appended."),
        Column("batch_base_offset", pa.int64(), "The first offset of its batch as written."),
        Column("batch_last_offset", pa.int64(), "The last offset of its batch as written."),
        Column("batch_records", pa.int32(), "Number of records that the batch still has; less than its "
               "offsets if it was compacted."),
        Column("leader_epoch", pa.int32(), "The leader epoch of the batch."),
        Column("attributes", pa.int16(), "The attributes of the batch: compression, timestamp type, "
               "transactional, control."),
        Column("producer_id", pa.int64(), "-1 if none."),
        Column("producer_epoch", pa.int16(), "-1 if none."),
        Column("key", pa.binary(), "The key's bytes, including the record type.", nullable=True),
        Column("value", pa.binary(), "The value's bytes; null is a tombstone.", nullable=True),
        Column("headers", pa.binary(), "The headers' bytes, if any.", nullable=True),
        Column("key_type", pa.int16(), "The record type; null for a control record.", nullable=True),
        Column("value_version", pa.int16(), "The version of the value; null for a tombstone.", nullable=True),
        Column("group_id", pa.string(), "The first string of the key: the group id, or the transactional "
               "id of a transaction record.", nullable=True),
        Column("segment_base_offset", pa.int64(), "Base offset of the segment that it was read from; -1 if "
               "fetched."),
        Column("file_position", pa.int64(), "Position of its batch in the segment; -1 if fetched."),
    ),
    key=("cluster", "topic", "partition", "offset"),
)  # fmt: skip
