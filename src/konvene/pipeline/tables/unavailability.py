"""Defines `unavailability`: intervals in which a partition or task had no owner."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, EVIDENCE, GROUP, GROUP_TYPE, UNIT
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "unavailability",
    "gold",
    "A gap for each time that a partition (active task) of a group had no owner between two owners, or was "
    "not read while its classic group rebalanced. In a share group the last member that it was assigned to "
    "counts as its owner. A partition that its owner gave up while it stayed in the group has no gap.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        *UNIT,
        Column("from_ms", pa.int64(), "When the last owner lost it."),
        Column("to_ms", pa.int64(), "When the next one got it; null while it has no owner.", nullable=True),
        Column("gap_ms", pa.int64(), "The time between.", nullable=True),
        Column("from_member_id", pa.string(), "The owner before.", nullable=True),
        Column("to_member_id", pa.string(), "The owner after.", nullable=True),
        Column("epoch", pa.int32(), "Epoch (generation) of the rebalance that it is attributed to."),
        Column("log_partition", pa.int32(), "Log partition of that rebalance."),
        Column("base_offset", pa.int64(), "First record of that rebalance; -1 if it has no row."),
        Column("cause", pa.string(), "Cause of that rebalance."),
        Column(
            "left_open_by",
            pa.int32(),
            "Epoch (generation) of the rebalance that completed without "
            "assigning it to any member; null if none did. The time from the start of that rebalance on "
            "counts for it.",
            nullable=True,
        ),
        EVIDENCE,
    ),
    key=("cluster", "group_id", "topic", "partition", "role", "from_ms", "log_partition", "base_offset"),
)
