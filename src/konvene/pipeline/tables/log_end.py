"""Defines `log_end`: log ends of user topics over time, from batch headers alone."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "log_end",
    "bronze",
    "One row for each stretch of batches of a user's topic: how far the log had grown, and when. No record "
    "of such a topic is read.",
    (
        CLUSTER,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("timestamp_ms", pa.int64(), "The largest timestamp of the stretch."),
        Column("first_timestamp_ms", pa.int64(), "The smallest one."),
        Column("base_offset", pa.int64(), "First offset of the stretch."),
        Column("log_end_offset", pa.int64(), "The offset after its last record."),
        Column("batches", pa.int32(), "Number of batches."),
    ),
    key=("cluster", "topic", "partition", "base_offset"),
)
