"""Defines `share_delivery`: the last state of each share partition, and totals of its deliveries."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "share_delivery",
    "gold",
    "For each partition of a share group, the last share state in the log and the totals that led to it. A "
    "state records a delivery when it is acknowledged: records that a member has acquired are in no state, "
    "and a delivery that ended with the partition leader's broker may never be recorded. So all figures "
    "are lower bounds.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic (its id if the name is not known)."),
        Column("partition", pa.int32(), "The partition."),
        Column("state_epoch", pa.int32(), "The epoch of the state; null if no snapshot contains it.",
               nullable=True),
        Column("start_offset", pa.int64(), "All records before it are completed; -1 if there are none yet."),
        Column("delivered", pa.int64(), "Number of deliveries."),
        Column("redelivered", pa.int64(), "Deliveries after the first one of their record."),
        Column("acknowledged", pa.int64(), "Records that were accepted."),
        Column("released", pa.int64(), "How often a record became available again."),
        Column("archived", pa.int64(), "Records that were archived: rejected, delivered too often, or "
               "offsets without a record."),
        Column("in_flight", pa.int64(), "Records at the end that were delivered and are not completed: "
               "available again, or about to be archived."),
        Column("available", pa.int64(), "In-flight records that are available again."),
        Column("archiving", pa.int64(), "In-flight records that are about to be archived, as soon as they "
               "are copied."),
        Column("untold", pa.int64(), "Offsets between the start and the last offset of the state that have "
               "no entry: mostly acquired by a member at the end."),
        Column("in_flight_deliveries", pa.int32(), "Largest delivery count of an in-flight record; 0 if "
               "there is none."),
        Column("complete_count", pa.int64(), "The coordinator's own count of completed records after the "
               "start offset; null if it has none, as before Kafka 4.2.", nullable=True),
        Column("max_delivery_count", pa.int32(), "Largest delivery count of any record."),
        Column("snapshots", pa.int32(), "Number of snapshots in the log."),
        Column("updates", pa.int32(), "Number of updates in the log."),
        Column("first_ms", pa.int64(), "Time of its first record in the log."),
        Column("last_ms", pa.int64(), "Time of its last state change."),
        Column("moved_ms", pa.int64(), "When its start offset moved last, or its state began."),
        Column("deleted_ms", pa.int64(), "When the state was deleted, if it was; the other columns are as "
               "of before.",
               nullable=True),
        Column(EVIDENCE.name, EVIDENCE.type, "`observed` if the log has the whole history; `missing` if it "
               "lost records: the figures count the remaining ones."),
    ),
    key=("cluster", "group_id", "topic", "partition"),
)  # fmt: skip
