"""Who had what, from when to when."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, UNIT
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "ownership",
    "gold",
    "An interval for each partition or task that a member had, in each role.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        *UNIT,
        Column("member_id", pa.string(), "Who had it."),
        Column("instance_id", pa.string(), "Its instance id.", nullable=True),
        Column("client_id", pa.string(), "Its client id.", nullable=True),
        Column("from_ms", pa.int64(), "From the record that gave it on."),
        Column("to_ms", pa.int64(), "Up to the record that took it; null while it has it.", nullable=True),
        Column("from_epoch", pa.int32(), "The epoch (generation) of the group then."),
        Column("to_epoch", pa.int32(), "Likewise.", nullable=True),
        Column("log_partition", pa.int32(), "The partition of `__consumer_offsets`."),
        Column("from_offset", pa.int64(), "The record that gave it."),
        Column("to_offset", pa.int64(), "The record that took it.", nullable=True),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "topic", "partition", "role", "member_id", "from_offset"),
)
