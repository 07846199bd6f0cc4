"""What could not be read, and why."""

import pyarrow as pa

from konvene.pipeline.tables.common import WHERE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "quarantine",
    "bronze",
    "Batches and records that could not be read. They stop nobody; what they may have said is missing.",
    (
        *WHERE,
        Column("segment_base_offset", pa.int64(), "The segment; -1 of a fetch."),
        Column("file_position", pa.int64(), "Where in the segment it begins; -1 of a fetch."),
        Column("offset", pa.int64(), "The offset of the record, or the batch's first one; -1 if not even "
               "that "
               "can be read."),
        Column("length", pa.int64(), "So many bytes were passed over."),
        Column("reason", pa.string(), "What is wrong with it."),
        Column("bytes", pa.binary(), "The first kilobyte of it."),
    ),
    key=("cluster", "topic", "partition", "segment_base_offset", "file_position", "offset"),
)  # fmt: skip
