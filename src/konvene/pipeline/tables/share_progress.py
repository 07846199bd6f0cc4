"""How deliveries went in a share group, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "share_progress",
    "gold",
    "One row for each minute in which the state of a share partition was written: what was answered for in "
    "it, and how the partition stood at its end. What `share_delivery` says of states holds here as well.",
    (
        CLUSTER,
        GROUP,
        Column("topic", pa.string(), "The topic, its id where its name is not known."),
        Column("partition", pa.int32(), "The partition."),
        Column("minute_ms", pa.int64(), "When the minute begins."),
        Column("start_offset", pa.int64(), "The start offset at its end: everything before it is done with; "
               "-1 where nothing is yet. Null where the state was deleted.", nullable=True),
        Column("advanced", pa.int64(), "By how much it moved since the row before; null for the first row, "
               "and where the state began anew since.", nullable=True),
        Column("complete_count", pa.int64(), "How many records behind the start the coordinator itself said "
               "were done with at the end of the minute; null where it did not.", nullable=True),
        Column("delivered", pa.int64(), "Deliveries that were answered for."),
        Column("redelivered", pa.int64(), "Those that were not the first of their record."),
        Column("acknowledged", pa.int64(), "Records that were accepted."),
        Column("released", pa.int64(), "How often a record was made available again."),
        Column("archived", pa.int64(), "Records that were given up."),
        Column("available", pa.int64(), "Records at its end that were delivered and are available again."),
        Column("archiving", pa.int64(), "Records at its end that are about to be archived."),
        Column("untold", pa.int64(), "Offsets at its end, between those that the state tells of, of which it "
               "tells nothing: mostly held by a member."),
        Column("in_flight_deliveries", pa.int32(), "How often the one available or archiving was delivered "
               "that was most often; 0 where none is."),
        Column("records", pa.int32(), "Records of its state that were written in the minute."),
        Column("last_ms", pa.int64(), "When the last of them was."),
        Column("evidence", pa.string(), "`observed` where the log tells all of the minute; `missing` where "
               "it lost records of it: the figures are of what is left."),
    ),
    key=("cluster", "group_id", "topic", "partition", "minute_ms"),
)  # fmt: skip
