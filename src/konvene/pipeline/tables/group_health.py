"""How groups fared, minute by minute."""

import pyarrow as pa

from konvene.pipeline.tables.common import CLUSTER, GROUP, GROUP_TYPE
from konvene.pipeline.tables.table import Column, Table

TABLE = Table(
    "group_health",
    "gold",
    "One row for each group and minute in which something moved: how stable it was, and who stood in the "
    "way.",
    (
        CLUSTER,
        GROUP,
        GROUP_TYPE,
        Column("minute_ms", pa.int64(), "When the minute begins."),
        Column("state", pa.string(), "The group's state at its end; `Unknown` before its first "
               "rebalance."),
        Column("members", pa.int32(), "Members at its end; of a classic group that rebalances, those "
               "before."),
        Column("rebalances", pa.int32(), "Rebalances that began in it."),
        Column("rebalances_last_hour", pa.int32(), "Those of the hour that ends with it."),
        Column("p99_rebalance_ms", pa.int64(), "How long 99 of 100 rebalances took at most that ended in "
               "that hour, superseded ones too; of those whose duration is known.", nullable=True),
        Column("unavailable_pct", pa.float64(), "Which part of the time of all partitions (active tasks) in "
               "this minute nobody owned them; null where it had none.", nullable=True),
        Column("stuck_member_id", pa.string(), "A member that kept the group from being stable for all of "
               "the minute; of several the one that most waited for.", nullable=True),
        Column("storm", pa.bool_(), "Whether rebalances follow one another so closely that the group has no "
               "rest: five or more in ten minutes, but for those that came as a warm-up had caught up."),
        Column("score", pa.int32(), "100 is a quiet group. Up to 40 go for unavailability, as many as "
               "it is of the whole, 30 for a storm, 20 for a stuck member, 10 for more than one rebalance an "
               "hour, counted as for storms."),
    ),
    key=("cluster", "group_id", "minute_ms"),
)  # fmt: skip
