"""Defines columns and types that several tables share."""

from __future__ import annotations

import pyarrow as pa

from konvene.pipeline.tables.table import Column

__all__ = ["CLUSTER", "EVIDENCE", "GROUP", "GROUP_TYPE", "UNIT", "WHERE", "strings"]

strings = pa.list_(pa.field("element", pa.string(), nullable=False))

CLUSTER = Column("cluster", pa.string(), "The cluster id, or the name that was given to the input.")
WHERE = (
    CLUSTER,
    Column(
        "topic",
        pa.string(),
        "The topic (its id if the name is not known); for a task, its subtopology or connector.",
    ),
    Column("partition", pa.int32(), "The partition; for a task, its number; -1 for a connector."),
)
GROUP = Column("group_id", pa.string(), "The group id.")
GROUP_TYPE = Column("group_type", pa.string(), "`classic`, `consumer`, `share` or `streams`.")
EVIDENCE = Column(
    "evidence",
    pa.string(),
    "`observed`: recorded by the coordinator (in the audit, or in this very record); `inferred`: derived "
    "from the records of the log; `missing`: the log no longer contains the records that this needs.",
)
UNIT = (
    Column(
        "topic",
        pa.string(),
        "The topic (its id if the name is not known); for a task, its subtopology or connector.",
    ),
    Column("partition", pa.int32(), "The partition; for a task, its number; -1 for a connector."),
    Column(
        "role",
        pa.string(),
        "`active`; for a task also `standby` or `warmup`; `shared` for a partition of a share group, which "
        "several members may be assigned at the same time; `connector` or `task` in Kafka Connect.",
    ),
)
"""What a member is assigned: a partition of a topic, or a task of a subtopology."""
