"""How far logs of users' topics had grown, and when: from the headers of their batches alone."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "log_end",
    "bronze",
    "One row for each stretch of batches of a user's topic: how far the log had grown, and when. No record "
    "of "
    "such a topic is read.",
    (
        CLUSTER,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("timestamp_ms", pa.int64(), "The largest timestamp of the stretch."),
        Column("first_timestamp_ms", pa.int64(), "The smallest one."),
        Column("base_offset", pa.int64(), "Where the stretch begins."),
        Column("log_end_offset", pa.int64(), "The offset behind it."),
        Column("batches", pa.int32(), "So many batches it has."),
    ),
    key=("cluster", "topic", "partition", "base_offset"),
)
