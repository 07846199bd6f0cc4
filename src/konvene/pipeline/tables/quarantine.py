"""Defines `quarantine`: batches and records that could not be decoded, with the reason."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "quarantine",
    "bronze",
    "Batches and records that could not be read. Reading continues after them; their contents are missing.",
    (
        *WHERE,
        Column("segment_base_offset", pa.int64(), "Base offset of the segment; -1 if fetched."),
        Column("file_position", pa.int64(), "Position in the segment; -1 if fetched."),
        Column("offset", pa.int64(), "Offset of the record, or first offset of the batch; -1 if it is "
               "unreadable."),
        Column("length", pa.int64(), "Number of bytes skipped."),
        Column("reason", pa.string(), "Why it could not be read."),
        Column("bytes", pa.binary(), "Its first kilobyte."),
    ),
    key=("cluster", "topic", "partition", "segment_base_offset", "file_position", "offset"),
)  # fmt: skip
