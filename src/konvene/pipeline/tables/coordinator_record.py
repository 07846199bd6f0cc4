"""Every record of a coordinator's log, as it stands there."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "coordinator_record",
    "bronze",
    "Every record of the coordinators' logs, byte for byte, with what its batch says of it. Records of other "
    "topics are not in it.",
    (
        *WHERE,
        Column("offset", pa.int64(), "Where it stands."),
        Column("timestamp_ms", pa.int64(), "When it was made; with log-append time, when it was appended."),
        Column("batch_base_offset", pa.int64(), "Where its batch began when it was written."),
        Column("batch_last_offset", pa.int64(), "Where its batch ended when it was written."),
        Column("batch_records", pa.int32(), "How many records the batch still has; fewer than its offsets "
               "where a cleaner was."),
        Column("leader_epoch", pa.int32(), "The leader epoch of the batch."),
        Column("attributes", pa.int16(), "The attributes of the batch: compression, timestamp type, "
               "transactional, control."),
        Column("producer_id", pa.int64(), "-1 where none."),
        Column("producer_epoch", pa.int16(), "-1 where none."),
        Column("key", pa.binary(), "The key's bytes, behind which stands the type.", nullable=True),
        Column("value", pa.binary(), "The value's bytes; null is a tombstone.", nullable=True),
        Column("headers", pa.binary(), "The headers' bytes where there are any.", nullable=True),
        Column("key_type", pa.int16(), "The type of the record; null in a control record.", nullable=True),
        Column("value_version", pa.int16(), "Null in a tombstone.", nullable=True),
        Column("group_id", pa.string(), "The first text of the key: the group; of a transaction its "
               "transactional id.", nullable=True),
        Column("segment_base_offset", pa.int64(), "The segment that it was read from; -1 of a fetch."),
        Column("file_position", pa.int64(), "Where in the segment its batch begins; -1 of a fetch."),
    ),
    key=("cluster", "topic", "partition", "offset"),
)  # fmt: skip
