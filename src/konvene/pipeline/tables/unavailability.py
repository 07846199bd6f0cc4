"""When nobody had what somebody had before."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, UNIT
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "unavailability",
    "gold",
    "A gap for each time that a partition (active task) of a group had no owner between two owners, or was "
    "not "
    "read while its classic group rebalanced. In a share group the last of those who had it is the owner.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        *UNIT,
        Column("from_ms", pa.int64(), "When the last owner lost it."),
        Column("to_ms", pa.int64(), "When the next one had it; null while nobody has it.", nullable=True),
        Column("gap_ms", pa.int64(), "The time between.", nullable=True),
        Column("from_member_id", pa.string(), "Who had it before.", nullable=True),
        Column("to_member_id", pa.string(), "Who had it then.", nullable=True),
        Column("epoch", pa.int32(), "The rebalance that it belongs to: its epoch,"),
        Column("log_partition", pa.int32(), "its partition,"),
        Column("base_offset", pa.int64(), "and its first record; -1 where there is no row of it."),
        Column("cause", pa.string(), "That rebalance's cause."),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "topic", "partition", "role", "from_ms", "log_partition", "base_offset"),
)
