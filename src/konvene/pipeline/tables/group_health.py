"""Defines `group_health`: state, storms, unavailability and score of groups, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP, GROUP_TYPE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "group_health",
    "gold",
    "One row for each group and minute with a change: how stable the group was, and which member delayed "
    "it.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("minute_ms", pa.int64(), "Start of the minute."),
        Column("state", pa.string(), "The group's state at its end; `Unknown` before its first rebalance."),
        Column("members", pa.int32(), "Members at its end; for a rebalancing classic group, the members "
               "before."),
        Column("rebalances", pa.int32(), "Rebalances that began in the minute."),
        Column("rebalances_last_hour", pa.int32(), "Rebalances that began in the hour that ends with the "
               "minute."),
        Column("p99_rebalance_ms", pa.int64(), "99th percentile of the durations of rebalances that ended "
               "in that hour, including superseded ones, as far as they are known.", nullable=True),
        Column("unavailable_pct", pa.float64(), "Percentage of the minute for which partitions (active "
               "tasks) had no owner, over all of them; null if there are none.", nullable=True),
        Column("stuck_member_id", pa.string(), "A member that kept the group from being stable for the "
               "whole minute; of several, the one that most others waited for.", nullable=True),
        Column("storm", pa.bool_(), "Whether there was a storm: five or more rebalances in ten minutes, "
               "not counting those triggered by a warm-up task that caught up."),
        Column("score", pa.int32(), "100 for a calm group. Subtracted are up to 40 for unavailability in "
               "proportion, 30 for a storm, 20 for a stuck member, and 10 for more than one rebalance per "
               "hour (counted as for storms)."),
    ),
    key=("cluster", "group_id", "minute_ms"),
)  # fmt: skip
