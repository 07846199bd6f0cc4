"""What became of the records of a share group."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "share_delivery",
    "gold",
    "For each partition of a share group, what its share state says at the end of the log, and how it got "
    "there.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic, its id where its name is not known."),
        Column("partition", pa.int32(), "The partition."),
        Column("state_epoch", pa.int32(), "The epoch of the state."),
        Column("start_offset", pa.int64(), "Everything before it is done with; -1 where nothing is yet."),
        Column("delivered", pa.int64(), "Deliveries that the states tell of, all together."),
        Column("acknowledged", pa.int64(), "Records that were accepted."),
        Column("released", pa.int64(), "How often a record was made available again."),
        Column("archived", pa.int64(), "Records that were given up: rejected, or delivered too often."),
        Column("in_flight", pa.int64(), "Records that are neither done with nor untouched at the end."),
        Column("max_delivery_count", pa.int32(), "Of any record."),
        Column("snapshots", pa.int32(), "Snapshots in the log."),
        Column("updates", pa.int32(), "Updates in the log."),
        Column("last_ms", pa.int64(), "When its state changed last."),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "topic", "partition"),
)
