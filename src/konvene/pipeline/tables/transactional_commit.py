"""Defines `transactional_commit`: offsets committed in transactions, with producer and outcome."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "transactional_commit",
    "gold",
    "One row for each offset that was committed in a transaction, in the order in which the transactions "
    "ended; open ones come last.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic."),
        Column("partition", pa.int32(), "The partition."),
        Column("log_partition", pa.int32(), "The partition of `__consumer_offsets` of the group."),
        Column("log_offset", pa.int64(), "Offset of the commit in it."),
        Column("timestamp_ms", pa.int64(), "When it was written."),
        Column("committed_offset", pa.int64(), "The offset that was committed."),
        Column("producer_id", pa.int64(), "Id of the producer of the transaction."),
        Column("producer_epoch", pa.int16(), "Its epoch."),
        Column("transactional_id", pa.string(), "Its transactional id, if the logs of "
               "`__transaction_state` contain it.", nullable=True),
        Column("outcome", pa.string(), "`committed`, `aborted`, or `pending`: no marker followed."),
        Column("ended_offset", pa.int64(), "Offset of the marker; null while it is pending.",
               nullable=True),
        Column("ended_ms", pa.int64(), "When the marker was written.", nullable=True),
        Column("counted", pa.bool_(), "Whether the offset became the group's committed offset: not if it "
               "was aborted, and not if a later commit or a tombstone had been written by then. Null while "
               "it is pending.", nullable=True),
    ),
    key=("cluster", "group_id", "log_partition", "log_offset"),
)  # fmt: skip
