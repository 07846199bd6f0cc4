"""What became of the records of a share group."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "share_delivery",
    "gold",
    "For each partition of a share group, what its share state says at the end of the log, and how it got "
    "there. A state tells of a delivery when it was answered for: what a member holds at the moment stands "
    "in no record, and a delivery that ended with the broker that led the partition may never have. So all "
    "figures are of what the states tell: at least so much.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic, its id where its name is not known."),
        Column("partition", pa.int32(), "The partition."),
        Column("state_epoch", pa.int32(), "The epoch of the state; null where no snapshot tells it.",
               nullable=True),
        Column("start_offset", pa.int64(), "Everything before it is done with; -1 where nothing is yet."),
        Column("delivered", pa.int64(), "Deliveries, all together."),
        Column("redelivered", pa.int64(), "Those that were not the first of their record."),
        Column("acknowledged", pa.int64(), "Records that were accepted."),
        Column("released", pa.int64(), "How often a record was made available again."),
        Column("archived", pa.int64(), "Records that were given up: rejected, delivered too often, or "
               "offsets at which there is none."),
        Column("in_flight", pa.int64(), "Records at the end that were delivered and are not done with: "
               "available again, or about to be archived."),
        Column("available", pa.int64(), "Those of them that are available again."),
        Column("archiving", pa.int64(), "Those that are about to be archived, as soon as they are copied."),
        Column("untold", pa.int64(), "Offsets from the start to the last one that the state tells of, of "
               "which it tells nothing: mostly held by a member at the end."),
        Column("in_flight_deliveries", pa.int32(), "How often the one in flight was delivered that was most "
               "often; 0 where none is."),
        Column("complete_count", pa.int64(), "How many records behind the start the coordinator itself says "
               "are done with; null where it does not, as before Kafka 4.2.", nullable=True),
        Column("max_delivery_count", pa.int32(), "Of any record."),
        Column("snapshots", pa.int32(), "Snapshots in the log."),
        Column("updates", pa.int32(), "Updates in the log."),
        Column("first_ms", pa.int64(), "When the log begins to tell of it."),
        Column("last_ms", pa.int64(), "When its state changed last."),
        Column("moved_ms", pa.int64(), "When its start offset moved last, or its state began."),
        Column("deleted_ms", pa.int64(), "When the state was deleted, if it was: the rest is as it was "
               "before.",
               nullable=True),
        Column(EVIDENCE.name, EVIDENCE.type, "`observed` where the log tells the story from the beginning; "
               "`missing` where it lost records of it: the figures are of what is left."),
    ),
    key=("cluster", "group_id", "topic", "partition"),
)  # fmt: skip
