"""What was committed in transactions, by whom, and what became of it."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "transactional_commit",
    "gold",
    "One row for each offset that was committed in a transaction, in the order in which the transactions "
    "ended; those that are open stand last.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("log_partition", pa.int32(), "The partition of `__consumer_offsets` that has the group."),
        Column("log_offset", pa.int64(), "Where the commit stands in it."),
        Column("timestamp_ms", pa.int64(), "When it was written."),
        Column("committed_offset", pa.int64(), "The offset that was committed."),
        Column("producer_id", pa.int64(), "Whose transaction it was part of."),
        Column("producer_epoch", pa.int16(), "And of which epoch."),
        Column("transactional_id", pa.string(), "The name of that producer, where `__transaction_state` is "
               "among the logs and tells it.", nullable=True),
        Column("outcome", pa.string(), "`committed`, `aborted`, or `pending`: no marker followed."),
        Column("ended_offset", pa.int64(), "Where the marker stands; null while it is pending.",
               nullable=True),
        Column("ended_ms", pa.int64(), "When that was written.", nullable=True),
        Column("counted", pa.bool_(), "Whether the group had this offset from then on: not where it was "
               "aborted, and not where a later commit or a tombstone stood in the log by then. Null while "
               "it is pending.", nullable=True),
    ),
    key=("cluster", "group_id", "log_partition", "log_offset"),
)  # fmt: skip
