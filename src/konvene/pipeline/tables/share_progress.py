"""Defines `share_progress`: deliveries of share partitions, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "share_progress",
    "gold",
    "One row for each minute in which the state of a share partition was written: the acknowledged "
    "deliveries in it, and the state at its end. The limits of `share_delivery` apply.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic (its id if the name is not known)."),
        Column("partition", pa.int32(), "The partition."),
        Column("minute_ms", pa.int64(), "Start of the minute."),
        Column("start_offset", pa.int64(), "The start offset at its end: all records before it are "
               "completed; -1 if there are none yet. Null if the state was deleted.", nullable=True),
        Column("advanced", pa.int64(), "Difference to the start offset of the previous row; null for the "
               "first row, and if the state restarted since.", nullable=True),
        Column("complete_count", pa.int64(), "The coordinator's own count of completed records after the "
               "start offset at the end of the minute; null if it has none.", nullable=True),
        Column("delivered", pa.int64(), "Deliveries that were acknowledged."),
        Column("redelivered", pa.int64(), "Deliveries after the first one of their record."),
        Column("acknowledged", pa.int64(), "Records that were accepted."),
        Column("released", pa.int64(), "How often a record became available again."),
        Column("archived", pa.int64(), "Records that were archived."),
        Column("available", pa.int64(), "Records at its end that were delivered and are available again."),
        Column("archiving", pa.int64(), "Records at its end that are about to be archived."),
        Column("untold", pa.int64(), "Offsets at its end without an entry, between others that have one: "
               "mostly acquired by a member."),
        Column("in_flight_deliveries", pa.int32(), "Largest delivery count of a record that is available "
               "or archiving; 0 if there is none."),
        Column("records", pa.int32(), "Records of its state written in the minute."),
        Column("last_ms", pa.int64(), "Time of the last of them."),
        Column("evidence", pa.string(), "`observed` if the log has all records of the minute; `missing` if "
               "it lost some: the figures count the remaining ones."),
    ),
    key=("cluster", "group_id", "topic", "partition", "minute_ms"),
)  # fmt: skip
